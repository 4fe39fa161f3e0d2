"""Where images come from: one function that opens any of the sources, with `datasets` underneath."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
from PIL import Image

from ...data.classes import check_label, renumber
from ...data.splits import HELD, hold_out, limited, one_validation
from ...data.tables import RawSplits, beside, choose, label_column, measured, open_tables, parquet_files, pick_column
from ...errors import InputError
from .digits import digits
from .folders import class_folders, has_images
from .pictures import open_picture, to_mode


@dataclass(frozen=True)
class Split:
    """Labelled images, not yet decoded."""

    rows: Any  # a Dataset, or an IterableDataset when streaming
    name: str
    image: str  # the columns
    label: str
    classes: tuple[str, ...] | None  # where the source names them
    length: int | None  # None: a stream that does not say
    renumbered: tuple[int, ...] | None = None  # where this split numbers its classes otherwise than the training split

    @property
    def streaming(self) -> bool:
        return isinstance(self.rows, datasets.IterableDataset)

    def numbered_as(self, names: Sequence[str] | None) -> "Split":
        """With its classes numbered as these names are, where both have names."""
        numbers = renumber(self.classes, names, self.name)
        return self if numbers is None or names is None else replace(self, renumbered=numbers, classes=tuple(names))

    def chosen(self, numbers: Sequence[int]) -> "Split":
        return replace(self, rows=self.rows.select(numbers), length=len(numbers))

    def read(self, row: dict[str, Any], number: int, mode: str) -> tuple[Image.Image, int]:
        """A row's image in PIL's mode, and its label; `number` is the row's, for the error."""
        content, label = row[self.image], row[self.label]
        check_label(label, f"image {number} of split {self.name}")
        try:
            with open_picture(content) as picture:
                image = to_mode(picture, mode)
        except Exception as wrong:  # whatever a broken file makes its decoder say
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
) -> tuple[Split, Split]:
    """The training and the validation split of a source.

    `holdout` takes that many images of the training split, always the same ones, for validation instead.
    """
    one_validation(validation, holdout)
    tables = _open(source, subset, streaming, (train, validation or train))
    options = dict(image=image, label=label, streaming=streaming)
    training = _split(tables, train, source, **options)
    if holdout:
        kept, held = _hold_out(training, holdout)
    else:
        name = validation or beside(tables, train, source, "images")
        kept, held = training, _split(tables, name, source, **options).numbered_as(training.classes)
    return _limited(kept, limit), _limited(held, limit)


def open_split(
    source: str, name: str | None = None, *, subset: str | None = None, image: str | None = None,
    label: str | None = None,
) -> Split:  # fmt: skip
    """One split of a source: the one of that name, else what it has for validation, else the only one."""
    tables = _open(source, subset, False, (name,) if name else ())
    return _split(tables, name, source, image=image, label=label, streaming=False)


def split_of(rows: Any, source: str) -> Split:
    """A data set that is open already, as a split."""
    return _split(measured({"all": rows}), "all", source, image=None, label=None, streaming=False)


def class_count(splits: Iterable[Split]) -> int:
    """How many classes the labels of these splits are about."""
    counts = []
    for split in splits:
        if split.classes is not None:
            counts.append(len(split.classes))
        elif split.streaming:
            raise InputError(
                f"the stream {split.name} does not say how many classes it has: set num_classes of the model"
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
    """Class folders, even where a stray table lies among the images."""
    if parquet_files(path, names) and not has_images(path):
        return None
    return measured(class_folders(path, names))


def _split(tables: RawSplits, name: str | None, source: str, *, image: Any, label: Any, streaming: Any) -> Split:
    name, (rows, length) = choose(tables, name, source)
    if rows.features is None:
        rows = rows._resolve_features()  # a stream without a schema tells its types with its first rows
    features = rows.features
    images = [name for name, feature in features.items() if _is_image(feature)]
    image = pick_column(image, features, images, what="image", option="data.image", kind="an image")
    label, classes = label_column(features, label)
    if streaming and isinstance(rows, datasets.Dataset):
        rows = rows.to_iterable_dataset()
    rows = rows.select_columns([image, label]).cast_column(image, datasets.Image(decode=False))
    return Split(rows, name, image, label, classes, length)


def _is_image(feature: Any) -> bool:
    return isinstance(feature, datasets.Image) or (isinstance(feature, dict) and {"bytes", "path"} <= set(feature))


def _hold_out(split: Split, count: int) -> tuple[Split, Split]:
    if split.streaming:
        raise InputError("data.holdout needs the images at hand: it does not go with data.streaming")
    kept, held = hold_out(len(split.rows), count, "images", split.name)
    return split.chosen(kept), replace(split.chosen(held), name=HELD)


def _limited(split: Split, limit: int | None) -> Split:
    if split.streaming:
        short = limit is None or (split.length is not None and split.length <= limit)
        return split if short else replace(split, rows=split.rows.take(limit), length=limit)
    part = limited(len(split.rows), limit)
    return split if part is None else split.chosen(part)
