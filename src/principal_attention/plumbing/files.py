"""Writing so that a kill or a full disk leaves either the old file or the new one, never half of one."""

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
    """Write to the path this yields; it takes the place of `path` when the block ends without an error."""
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
    """A full disk, or anything else that keeps a file from being written, is told with the file's path."""
    try:
        yield
    except Exception as wrong:
        # safetensors has errors of its own; by name, since its library need not be there
        if not isinstance(wrong, OSError) and type(wrong).__name__ != "SafetensorError":
            raise
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else wrong
        raise OSError(f"{path} could not be written ({reason}); make room and run the same command again") from wrong


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Write a model's files to the folder this yields; when the block ends without an error they go to `folder`, the
    card last: where there is one, all is there."""
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
        raise OSError(f"the model could not be written to {folder} ({reason}); make room and --resume") from wrong
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_jsonl(path: Path, objects: list[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    *lines, _cut = path.read_bytes().split(b"\n")  # which may end inside a letter
    try:
        found = [json.loads(line) for line in lines]
    except ValueError as wrong:
        raise InputError(f"{path} is damaged ({wrong}); remove it, or the line that is not JSON") from wrong
    for each in found:
        if not isinstance(each, dict):
            raise InputError(f"{path} is damaged: it holds {str(each)[:80]}; remove it, or the line that is no object")
    return found


def sync(path: Path) -> None:
    """Have the file, or the folder's list of files, on the disk itself."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
