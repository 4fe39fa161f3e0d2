"""Where images come from: one function that opens any of the sources, with `datasets` underneath."""

import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
from PIL import Image, UnidentifiedImageError

from ...errors import InputError
from .digits import digits

VALIDATION = ("validation", "val", "valid", "test")  # what the second split is called, in this order
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)  # what PIL raises on broken files


@dataclass(frozen=True)
class Split:
    """Labelled images, not yet decoded."""

    rows: Any  # a Dataset, or an IterableDataset when streaming
    name: str
    image: str  # the columns
    label: str
    classes: tuple[str, ...] | None  # where the source names them
    length: int | None  # None: a stream that does not say

    @property
    def streaming(self) -> bool:
        return isinstance(self.rows, datasets.IterableDataset)

    def read(self, row: dict[str, Any], number: int, mode: str) -> tuple[Image.Image, int]:
        """A row's image in PIL's mode, and its label; `number` is the row's, for the error."""
        content = row[self.image]
        try:
            with self._open(content) as image:
                return image.convert(mode), self._whole(row[self.label], number)
        except _UNREADABLE as wrong:
            if isinstance(wrong, InputError):
                raise
            where = f" ({content['path']})" if content.get("path") else ""
            reason = "not an image" if isinstance(wrong, UnidentifiedImageError) else wrong
            raise InputError(f"image {number} of split {self.name}{where} cannot be read: {reason}") from wrong

    def _open(self, content: dict[str, Any]) -> Image.Image:
        if content.get("bytes") is not None:
            return Image.open(io.BytesIO(content["bytes"]))
        if os.path.exists(content["path"]):
            return Image.open(content["path"])
        return datasets.Image().decode_example(content)  # type: ignore[no-any-return]  # in an archive, or on the hub

    def _whole(self, label: Any, number: int) -> int:
        if not isinstance(label, int):
            raise InputError(f"the label of image {number} of split {self.name} is {label!r}; expected a class number")
        return label


def open_splits(
    source: str,
    *,
    train: str = "train",
    validation: str | None = None,
    holdout: int = 0,
    subset: str | None = None,
    image: str | None = None,
    label: str | None = None,
    streaming: bool = False,
    limit: int | None = None,
) -> tuple[Split, Split]:
    """The training and the validation split of a source.

    `holdout` takes that many images of the training split, always the same ones, for validation instead.
    """
    tables = _open(source, subset, streaming)
    training = _split(tables, train, source, image, label)
    if holdout:
        held, kept = _hold_out(training, holdout)
    else:
        kept = training
        name = validation or next((name for name in VALIDATION if name in tables and name != train), None)
        if name is None:
            raise InputError(
                f"{source} has no split for validation, only {', '.join(tables)}; "
                "name one in data.validation, or take images of the training split with data.holdout"
            )
        held = _split(tables, name, source, image, label)
    return _limited(kept, limit), _limited(held, limit)


def _open(source: str, subset: str | None, streaming: bool) -> dict[str, Any]:
    if source == "digits":
        return digits()
    path = Path(source).expanduser()
    if not path.exists():
        if path.is_absolute() or source.startswith((".", "~")):
            raise InputError(f"there is nothing at {source}; expected a parquet file or a folder of images")
        return _load(source, subset, streaming)
    parquet = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if path.is_file() and path.suffix != ".parquet":
        raise InputError(f"{source} is a file but not parquet; expected a parquet file or a folder of images")
    if parquet:
        where = {"data_files": str(path)} if path.is_file() else {"data_dir": str(path)}
        return _load("parquet", None, streaming, **where)
    tables = _class_folders(path)
    return {name: rows.to_iterable_dataset() for name, rows in tables.items()} if streaming else tables


def _load(name: str, subset: str | None, streaming: bool, **where: str) -> dict[str, Any]:
    try:
        return dict(datasets.load_dataset(name, subset, streaming=streaming, **where))
    except Exception as wrong:  # whatever the hub, the network, the file system or the format make of it
        what = where.get("data_files") or where.get("data_dir") or f"the data set {name}"
        raise InputError(f"{what} cannot be opened: {' '.join(str(wrong).split())}") from wrong


def _class_folders(root: Path) -> dict[str, Any]:
    """`root/train/n01440764/x.JPEG`, or the class folders themselves in root; classes are numbered by sorted name.

    Listed by ourselves: the library's own reading of a folder takes about a millisecond a file, and keeps a copy.
    """
    subfolders = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    splits = [name for name in subfolders if name in ("train", *VALIDATION)]
    found = {name: _classes(root / name) for name in splits} or {"train": _classes(root)}
    if not any(found.values()):
        raise InputError(
            f"{root} holds neither parquet nor images in class folders; expected {root}/train/CLASS/IMAGE.jpg"
        )
    names = sorted({name for classes in found.values() for name in classes})  # a split may lack one
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=names))
    tables = {}
    for split, classes in found.items():
        listed = [(path, number) for number, name in enumerate(names) for path in classes.get(name, ())]
        columns = {"image": [path for path, _ in listed], "label": [number for _, number in listed]}
        tables[split] = datasets.Dataset.from_dict(columns, features=features)
    return tables


def _classes(folder: Path) -> dict[str, list[str]]:
    known = Image.registered_extensions()
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    listed = {name: sorted(entry.path for entry in os.scandir(folder / name)) for name in classes}
    images = {name: [p for p in files if os.path.splitext(p)[1].lower() in known] for name, files in listed.items()}
    return {name: files for name, files in images.items() if files}


def _split(tables: dict[str, Any], name: str, source: str, image: str | None, label: str | None) -> Split:
    if name not in tables:
        raise InputError(f"{source} has no split {name!r}; it has {', '.join(tables)}")
    rows = tables[name]
    if rows.features is None:
        rows = rows._resolve_features()  # a stream without a schema tells its types with its first rows
    features = rows.features
    image = _column(image, features, "image", [n for n, f in features.items() if _is_image(f)])
    named = [n for n, f in features.items() if isinstance(f, datasets.ClassLabel)]
    whole = [n for n, f in features.items() if str(getattr(f, "dtype", "")).startswith(("int", "uint"))]
    label = _column(label, features, "label", named or whole)
    classes = tuple(features[label].names) if label in named else None
    length = len(rows) if hasattr(rows, "__len__") else _told(rows, name)
    rows = rows.select_columns([image, label]).cast_column(image, datasets.Image(decode=False))
    return Split(rows, name, image, label, classes, length)


def _told(rows: Any, name: str) -> int | None:
    splits = rows.info.splits
    return splits[name].num_examples if splits and name in splits else None


def _is_image(feature: Any) -> bool:
    return isinstance(feature, datasets.Image) or (isinstance(feature, dict) and {"bytes", "path"} <= set(feature))


def _column(given: str | None, features: Any, what: str, found: list[str]) -> str:
    if given is not None:
        if given not in features:
            raise InputError(f"data.{what} is {given!r}; the columns are {', '.join(features)}")
        return given
    if len(found) == 1:
        return found[0]
    problem = f"several columns could be the {what}: {', '.join(found)}" if found else f"no column looks like an {what}"
    raise InputError(f"{problem}; name it with data.{what}=COLUMN, one of {', '.join(features)}")


def _hold_out(split: Split, count: int) -> tuple[Split, Split]:
    if split.streaming:
        raise InputError("data.holdout needs the images at hand: it does not go with data.streaming")
    if not 0 < count < len(split.rows):
        raise InputError(f"data.holdout is {count}; expected less than the {len(split.rows)} images of {split.name}")
    mixed = split.rows.shuffle(seed=0)  # of its own seed: the same images in every run
    held, kept = mixed.select(range(count)), mixed.select(range(count, len(mixed)))
    return replace(split, rows=held, name="holdout", length=count), replace(split, rows=kept, length=len(kept))


def _limited(split: Split, limit: int | None) -> Split:
    if limit is None or (split.length is not None and split.length <= limit):
        return split
    rows = split.rows.take(limit) if split.streaming else split.rows.shuffle(seed=0).select(range(limit))
    return replace(split, rows=rows, length=limit)


def class_count(splits: Iterable[Split]) -> int:
    """How many classes the labels of these splits are about."""
    counts = []
    for split in splits:
        if split.classes is not None:
            counts.append(len(split.classes))
        elif split.streaming:
            raise InputError(
                f"the stream {split.name} does not say how many classes it has; set num_classes of the model"
            )
        else:
            counts.append(max(split.rows.unique(split.label)) + 1)
    return max(counts)
