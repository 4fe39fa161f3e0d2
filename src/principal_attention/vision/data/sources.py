"""Open labelled images from the hub, parquet files, class folders or scikit-learn's digits, using `datasets`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
from PIL import Image

from ...data.classes import UNLABELLED, check_label, renumber
from ...data.splits import HELD, hold_out, limited, one_validation
from ...data.tables import RawSplits, beside, choose, label_column, measured, open_tables, parquet_files, pick_column
from ...errors import InputError
from .digits import digits
from .folders import class_folders, has_images
from .pictures import open_picture, to_mode

ANSWER = "answer"  # name of the column that `Split.answered` adds


@dataclass(frozen=True)
class Split:
    """Split of a data set: labelled images, not yet decoded."""

    rows: Any  # a Dataset, or an IterableDataset if streaming
    name: str
    image: str  # name of the image column
    label: str | None  # name of the label column; None for images without labels
    classes: tuple[str, ...] | None  # names of the classes; None if the source has none
    length: int | None  # number of images; None for a stream of unknown length
    renumbered: tuple[int, ...] | None = None  # class number in the training split of each class; None if the same

    @property
    def streaming(self) -> bool:
        return isinstance(self.rows, datasets.IterableDataset)

    def numbered_as(self, names: Sequence[str] | None) -> "Split":
        """The split with its classes numbered in the order of `names`; unchanged if either has no names."""
        numbers = renumber(self.classes, names, self.name)
        return self if numbers is None or names is None else replace(self, renumbered=numbers, classes=tuple(names))

    def chosen(self, numbers: Sequence[int]) -> "Split":
        return replace(self, rows=self.rows.select(numbers), length=len(numbers))

    def answered(self, labels: Sequence[int], classes: Sequence[str] | None) -> "Split":
        """The split with these labels instead of its own. `classes`: names of the classes."""
        rows = self.rows.select_columns([self.image]).add_column(ANSWER, list(labels))
        return replace(self, rows=rows, label=ANSWER, classes=tuple(classes) if classes else None, renumbered=None)

    def read(self, row: dict[str, Any], number: int, mode: str) -> tuple[Image.Image, int]:
        """Image of a row, in a mode of PIL, and its label, or `UNLABELLED` if the split has no labels.

        `number`: number of the row, for error messages.
        """
        content, label = row[self.image], UNLABELLED if self.label is None else row[self.label]
        check_label(label, f"image {number} of split {self.name}")
        try:
            with open_picture(content) as picture:
                image = to_mode(picture, mode)
        except Exception as wrong:  # any error of a decoder on a broken file
            path = content.get("path") if isinstance(content, dict) else None
            where = f" ({path})" if path else ""
            raise InputError(f"image {number} of split {self.name}{where} cannot be read: {wrong}") from wrong
        inside = self.renumbered is not None and 0 <= label < len(self.renumbered)
        return image, self.renumbered[label] if inside else label  # type: ignore[index]


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
    labelled: bool = True,
) -> tuple[Split, Split]:
    """Training split and validation split of a source.

    `holdout`: number of images of the training split, always the same ones, to use for validation instead.
    `limit`: maximum number of images of each split. `labelled`: raise `InputError` if the source has no labels.
    """
    one_validation(validation, holdout)
    tables = _open(source, subset, streaming, (train, validation or train))
    options: dict[str, Any] = dict(image=image, label=label, streaming=streaming, labelled=labelled)
    training = _split(tables, train, source, **options)
    if holdout:
        kept, held = _hold_out(training, holdout)
    else:
        name = validation or beside(tables, train, source, "images")
        kept, held = training, _split(tables, name, source, **options).numbered_as(training.classes)
    return _limited(kept, limit), _limited(held, limit)


def open_split(
    source: str, name: str | None = None, *, subset: str | None = None, image: str | None = None,
    label: str | None = None, labelled: bool = True,
) -> Split:  # fmt: skip
    """One split of a source. Default of `name`: the validation split, else the only split."""
    tables = _open(source, subset, False, (name,) if name else ())
    return _split(tables, name, source, image=image, label=label, streaming=False, labelled=labelled)


def split_lengths(source: str, names: tuple[str, ...] = ()) -> dict[str, int | None]:
    """Number of images of each split of a source; `names`: names of splits to look for."""
    return {name: found.length for name, found in _open(source, None, False, names).items() if found.length != 0}


def split_of(rows: Any, source: str) -> Split:
    """Split of a data set that is already open. `source`: its name in error messages."""
    return _split(measured({"all": rows}), "all", source, image=None, label=None, streaming=False)


def class_count(splits: Iterable[Split]) -> int:
    """Number of classes, the largest of the splits."""
    counts = []
    for split in splits:
        if split.classes is not None:
            counts.append(len(split.classes))
        elif split.streaming:
            raise InputError(
                f"the number of classes of the streamed split {split.name} is unknown; set model.options.num_classes"
            )
        else:
            counts.append(1 + max((n for n in split.rows.unique(split.label) if n is not None), default=0))
    return max(counts)


def _open(source: str, subset: str | None, streaming: bool, names: tuple[str, ...]) -> RawSplits:
    if source == "digits":
        return measured(digits())
    expected = "a parquet file or a folder of images"
    return open_tables(source, subset, names, expected=expected, streaming=streaming, other=_images)


def _images(path: Path, names: tuple[str, ...]) -> RawSplits | None:
    """Splits of class folders; None for a folder with parquet files and no images."""
    if parquet_files(path, names) and not has_images(path):
        return None
    return measured(class_folders(path, names))


def _split(
    tables: RawSplits, name: str | None, source: str, *, image: Any, label: Any, streaming: Any, labelled: bool = True
) -> Split:
    name, (rows, length) = choose(tables, name, source)
    if rows.features is None:
        rows = rows._resolve_features()  # types of a stream without a schema, from its first rows
    features = rows.features
    images = [name for name, feature in features.items() if _is_image(feature)]
    image = pick_column(image, features, images, what="image", option="data.image", kind="an image")
    classes: tuple[str, ...] | None
    try:
        label, classes = label_column(features, label)
    except InputError as wrong:
        if labelled and set(features) == {image}:
            raise InputError(f"{source} holds images without labels; expected {source}/CLASS/IMAGE.jpg") from wrong
        if labelled or label is not None:
            raise
        classes = None
    if streaming and isinstance(rows, datasets.Dataset):
        rows = rows.to_iterable_dataset()
    rows = rows.select_columns([image, *([label] if label else [])]).cast_column(image, datasets.Image(decode=False))
    return Split(rows, name, image, label, classes, length)


def _is_image(feature: Any) -> bool:
    return isinstance(feature, datasets.Image) or (isinstance(feature, dict) and {"bytes", "path"} <= set(feature))


def _hold_out(split: Split, count: int) -> tuple[Split, Split]:
    if split.streaming:
        raise InputError("data.holdout needs access to all images and cannot be combined with data.streaming")
    kept, held = hold_out(len(split.rows), count, "images", split.name)
    return split.chosen(kept), replace(split.chosen(held), name=HELD)


def _limited(split: Split, limit: int | None) -> Split:
    if split.streaming:
        short = limit is None or (split.length is not None and split.length <= limit)
        return split if short else replace(split, rows=split.rows.take(limit), length=limit)
    part = limited(len(split.rows), limit)
    return split if part is None else split.chosen(part)
