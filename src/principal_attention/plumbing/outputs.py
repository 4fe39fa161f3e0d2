"""Output folders of commands: locked while in use, and never shared by two kinds of results."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InputError
from .layout import ANALYSIS, CARD, DEMO, EVALUATION, LOCK, RECIPE

# content of a folder to the file that only its command writes
MARKS = {"a training run": RECIPE, "an evaluation": EVALUATION, "an analysis": ANALYSIS, "a demo": DEMO}


@contextmanager
def output_folder(folder: Path, holds: str) -> Iterator[None]:
    """Context manager that creates and locks an output folder; raises if it holds other results or is locked.

    `holds`: content of the folder, a key of MARKS. After an error, a new folder without results is removed.
    """
    check_output(folder, holds)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(folder):
            yield
    except BaseException:
        if made:
            _remove_unused(folder, made, {LOCK, MARKS[holds]})
        raise


def _remove_unused(folder: Path, made: list[Path], marks: set[str]) -> None:
    """Remove a folder that holds no files except `marks`, and its parents in `made`."""
    if {path.name for path in folder.rglob("*") if path.is_file()} <= marks:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another process may use a parent
            for parent in made[1:]:
                parent.rmdir()


def check_output(folder: Path, holds: str) -> None:
    """Raise `InputError` for a folder with results of another command. `holds`: a key of MARKS."""
    if folder == Path():
        raise InputError("--out is '' or '.', the current folder; name a folder for the results")
    for other, mark in MARKS.items():
        if other != holds and (folder / mark).is_file():
            raise InputError(f"{folder} holds {other}, whose files would be overwritten; choose another --out")
    if (folder / CARD).is_file() and not (folder / MARKS[holds]).is_file():
        raise InputError(f"{folder} holds a model, whose files would be overwritten; choose another --out")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process. The system releases the lock when the process ends; child processes do not
    inherit it."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    path = folder / LOCK
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as held:
            who = path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
            raise InputError(f"{folder} is in use by {who}; wait for it to end, or choose another --out") from held
        os.truncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
