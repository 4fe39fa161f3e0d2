"""Images in class folders, as ImageNet has them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets

from ...data.tables import VALIDATION
from ...errors import InputError
from .pictures import EXTENSIONS


def class_folders(root: Path, names: Iterable[str]) -> dict[str, Any]:
    """`root/train/n01440764/x.JPEG`, or the class folders themselves in root; classes are numbered by sorted name.

    Listed by ourselves: the library's own reading of a folder takes about a millisecond a file, and keeps a copy.
    """
    known = {*names, "train", *VALIDATION}
    splits = [name for name in _subfolders(root) if name in known]
    folders = {name: root / name for name in splits} or {"train": root}
    classes = {split: _subfolders(folder) for split, folder in folders.items()}
    numbered = classes.get("train") or sorted({name for each in classes.values() for name in each})
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=numbered or ["none"]))
    tables = {}
    for split, folder in folders.items():
        images, labels = [], []
        for name in classes[split]:
            found = list(_images(folder / name))
            if found and name not in numbered:
                raise InputError(f"{folder / name} is a class that {folders['train']} does not have")
            images += found
            labels += [numbered.index(name)] * len(found) if found else []
        tables[split] = datasets.Dataset.from_dict({"image": images, "label": labels}, features=features)
    if not any(len(table) for table in tables.values()):
        raise InputError(
            f"{root} holds neither parquet nor images in class folders; expected {root}/train/CLASS/IMAGE.jpg"
        )
    return tables


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> Iterator[str]:
    for parent, subfolders, files in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in EXTENSIONS and not name.startswith("."):
                yield os.path.join(parent, name)


def has_images(root: Path) -> bool:
    """Whether any folder below holds an image; most have theirs in the first class of the first split."""
    return any(True for name in _subfolders(root) for _ in _images(root / name))
