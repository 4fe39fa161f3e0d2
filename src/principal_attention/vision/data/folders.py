"""Data sets of images in one folder per class, as in ImageNet."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets

from ...data.tables import VALIDATION
from ...errors import InputError
from .pictures import EXTENSIONS


def class_folders(root: Path, names: Iterable[str]) -> dict[str, Any]:
    """Splits of `root/SPLIT/CLASS/IMAGE`, or one split "train" of `root/CLASS/IMAGE`; classes are numbered in sorted
    order. A folder of images without class folders gives splits without labels.

    The files are listed here, since the imagefolder loader of `datasets` takes about a millisecond per file and keeps a
    copy.
    """
    known = {*names, "train", *VALIDATION}
    splits = [name for name in _subfolders(root) if name in known]
    folders = {name: root / name for name in splits} or {"train": root}
    classes = {split: _subfolders(folder) for split, folder in folders.items()}
    numbered = classes.get("train") or sorted({name for each in classes.values() for name in each})
    if not any(has_images(folder) for folder in folders.values()):
        return _unlabelled(root, folders)
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
    return tables


def _unlabelled(root: Path, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Splits of `root/SPLIT/IMAGE` or `root/IMAGE`."""
    features = datasets.Features(image=datasets.Image())
    found = {split: list(_images(folder)) for split, folder in folders.items()}
    if not any(found.values()):
        raise InputError(
            f"{root} holds neither parquet nor images; expected {root}/train/CLASS/IMAGE.jpg, or without labels "
            f"{root}/IMAGE.jpg"
        )
    return {split: datasets.Dataset.from_dict({"image": files}, features=features) for split, files in found.items()}


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> Iterator[str]:
    for parent, subfolders, files in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in EXTENSIONS and not name.startswith("."):
                yield os.path.join(parent, name)


def has_images(root: Path) -> bool:
    """Whether any subfolder holds an image; stops at the first image."""
    return any(True for name in _subfolders(root) for _ in _images(root / name))
