"""Write files atomically: after a kill or with a full disk, either the old or the new file is there."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import InputError
from .layout import CARD


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context manager that yields a temporary path; its file replaces `path` if the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with writing(path):
            yield partial
            sync(partial)
            os.replace(partial, path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context manager that adds the path of the file to errors of writing, such as a full disk."""
    try:
        yield
    except Exception as wrong:
        # errors of safetensors are recognised by name, since it may not be installed
        if not isinstance(wrong, OSError) and type(wrong).__name__ != "SafetensorError":
            raise
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else wrong
        raise OSError(f"{path} could not be written ({reason}); make room and run the same command again") from wrong


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Context manager that yields a temporary folder for the files of a model. If the block ends without an error, they
    are moved to `folder`, config.json last: a folder with a config.json is complete."""
    from safetensors import SafetensorError

    partial = folder / ".files.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        for file in sorted(partial.iterdir(), key=lambda file: file.name == CARD):
            sync(file)
            os.replace(file, folder / file.name)
    except (OSError, SafetensorError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else wrong
        raise OSError(
            f"the model could not be written to {folder} ({reason}); make room and continue with --resume"
        ) from wrong
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_jsonl(path: Path, objects: list[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Objects of a JSON Lines file, one per line; an incomplete last line is ignored. Empty if the file is absent."""
    if not path.exists():
        return []
    *lines, _cut = path.read_bytes().split(b"\n")  # bytes, since the last line may end inside a character
    try:
        found = [json.loads(line) for line in lines]
    except ValueError as wrong:
        raise InputError(f"{path} is damaged ({wrong}); remove the file, or the line that is not JSON") from wrong
    for each in found:
        if not isinstance(each, dict):
            raise InputError(
                f"{path} is damaged: the line {str(each)[:80]} is not an object; remove the file or the line"
            )
    return found


def sync(path: Path) -> None:
    """Flush a file, or the list of files of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
