"""Folders that commands write to: one command's at a time, and never another's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError
from .layout import ANALYSIS, CARD, DEMO, EVALUATION, LOCK, RECIPE

# What a folder holds, by the file that only this command writes.
MARKS = {"a training run": RECIPE, "an evaluation": EVALUATION, "an analysis": ANALYSIS, "a demo": DEMO}


@contextmanager
def output_folder(folder: Path, holds: str) -> Iterator[None]:
    """Make the folder, refuse one that holds something else, and keep other processes out until the block ends."""
    check_output(folder, holds)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(folder):
            yield
    finally:
        if [each.name for each in folder.iterdir()] == [LOCK]:  # nothing came of it
            (folder / LOCK).unlink(missing_ok=True)
            folder.rmdir()


def check_output(folder: Path, holds: str) -> None:
    """Refuse a folder whose files another command wrote; `holds` is one of MARKS."""
    for other, mark in MARKS.items():
        if other != holds and (folder / mark).is_file():
            raise InputError(f"{folder} holds {other}, whose files would be overwritten; choose another --out")
    if (folder / CARD).is_file() and not (folder / MARKS[holds]).is_file():
        raise InputError(f"{folder} holds a model, whose files would be overwritten; choose another --out")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock of the process, which ends with it however it ends, and which its worker processes do not inherit."""
    try:
        import fcntl
    except ImportError:  # not on this system
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
