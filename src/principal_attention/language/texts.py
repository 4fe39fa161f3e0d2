"""Open texts and their labels from the hub or parquet files."""

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..data.classes import check_label, renumber
from ..data.splits import HELD, hold_out, limited, one_validation
from ..data.tables import RawSplits, beside, choose, label_column, open_tables, pick_column
from ..errors import InputError


@dataclass(frozen=True)
class Texts:
    """Split of a data set: its texts in order, with labels if it has classes."""

    name: str
    texts: list[str]
    labels: list[int] | None = None
    classes: tuple[str, ...] | None = None  # names of the classes; None if the source has none

    def numbered_as(self, names: tuple[str, ...] | None) -> "Texts":
        """The split with its classes numbered in the order of `names`; unchanged if either has no names."""
        numbers = renumber(self.classes, names, self.name)
        if numbers is None:
            return self
        assert self.labels is not None
        return replace(self, labels=[numbers[n] if n >= 0 else n for n in self.labels], classes=names)

    def check_labels(self, classes: int) -> None:
        for number, label in enumerate(self.labels or ()):
            check_label(label, f"text {number} of split {self.name}", classes)

    def __len__(self) -> int:
        return len(self.texts)


def open_split(
    source: str, name: str | None = None, *, labelled: bool, subset: str | None = None, **columns: Any
) -> Texts:
    """One split of a source. Default of `name`: the validation split, else the only split."""
    tables = open_tables(source, subset, (name,) if name else (), expected=_EXPECTED)
    return _read(tables, name, source, labelled, **columns)


def open_splits(
    source: str, *, labelled: bool, train: str = "train", validation: str | None = None, test: str | None = None,
    holdout: int = 0, subset: str | None = None, limit: int | None = None,
    roles: Container[str] = ("train", "validation", "test"), **columns: Any,
) -> dict[str, Texts]:  # fmt: skip
    """Splits by role: "train", "validation", and "test" if the source has a further split with known labels.

    Args:
        holdout: number of texts of the training split, always the same ones, to use for validation instead.
        limit: maximum number of texts of each split: a random subset of labelled texts, else the first ones.
        roles: roles to read. Default: all.
    """
    one_validation(validation, holdout)
    named = [name for name in (train, validation, test) if name]
    tables = open_tables(source, subset, named, expected=_EXPECTED)
    found: dict[str, Texts] = {}
    if "train" in roles or holdout:
        found["train"] = _read(tables, train, source, labelled, **columns)
    if holdout:
        found["train"], found["validation"] = _hold_out(found["train"], holdout)
    else:
        second = validation or beside(tables, train, source, "texts")
        found["validation"] = _read(tables, second, source, labelled, **columns)
    if "test" not in roles:
        pass
    elif test is not None:
        found["test"] = _read(tables, test, source, labelled, **columns)
    elif labelled and "test" in tables and found["validation"].name != "test":
        with suppress(InputError):  # the test split is optional here, and some data sets publish it without labels
            last = _read(tables, "test", source, labelled, **columns)
            if HIDDEN not in (last.labels or ()):
                found["test"] = last
    names = found["train"].classes if "train" in found else None
    return {role: _limited(split.numbered_as(names), limit) for role, split in found.items()}


_EXPECTED = "a parquet file with a column of texts, or a folder of them"
_STRINGS = ("string", "large_string")
HIDDEN = -1  # label of a text with unknown class, as in the test splits of GLUE on the hub
MOST_CLASSES = 100_000  # a column with larger numbers does not hold labels


def _text_column(rows: Any, given: str | None, option: str) -> str:
    found = [name for name, feature in rows.features.items() if getattr(feature, "dtype", "") in _STRINGS]
    return pick_column(given, rows.features, found, what="text", option=option, kind="texts")


def _read(
    tables: RawSplits, name: str | None, source: str, labelled: bool, *, text: str | None = None,
    label: str | None = None, options: tuple[str, str] = ("data.text", "data.label"),
) -> Texts:  # fmt: skip
    """Read a split. `options`: names of the options for the columns `text` and `label`, for error messages."""
    name, (rows, _) = choose(tables, name, source)
    try:
        texts = list(rows[_text_column(rows, text, options[0])])
        column, classes = label_column(rows.features, label, options[1]) if labelled else ("", None)
    except InputError as problem:
        raise InputError(f"the split {name} of {source}: {problem}") from problem
    except UnicodeDecodeError as wrong:
        raise InputError(f"the split {name} of {source} holds a text that is not UTF-8: {wrong}") from wrong
    for number, each in enumerate(texts):
        if not isinstance(each, str):
            raise InputError(f"text {number} of split {name} is {each!r}; expected a string")
    if not any(map(str.strip, texts)):
        raise InputError(f"the split {name} of {source} holds no words")
    if not labelled:
        return Texts(name, texts)
    labels = list(rows[column])
    most = len(classes) if classes else MOST_CLASSES
    for number, each in enumerate(labels):
        if each != HIDDEN:
            check_label(each, f"text {number} of split {name}", most)
    return Texts(name, texts, labels, classes)


def _hold_out(split: Texts, count: int) -> tuple[Texts, Texts]:
    kept, held = hold_out(len(split), count, "texts", split.name)
    return _chosen(split, kept), replace(_chosen(split, held), name=HELD)


def _limited(split: Texts, limit: int | None) -> Texts:
    part = limited(len(split), limit)
    if part is None:
        return split
    return _chosen(split, range(len(part)) if split.labels is None else part)


def _chosen(split: Texts, numbers: Iterable[int]) -> Texts:
    numbers = list(numbers)
    labels = None if split.labels is None else [split.labels[number] for number in numbers]
    return replace(split, texts=[split.texts[number] for number in numbers], labels=labels)


def count_classes(splits: Mapping[str, Texts]) -> int:
    """Number of classes of the training split; raises if another split has more."""
    train = splits["train"]
    assert train.labels is not None
    if len(set(train.labels)) < 2:
        raise InputError(f"all texts of the split {train.name} have one class; expected at least two")
    classes = len(train.classes) if train.classes else 1 + max(train.labels)
    for split in splits.values():
        split.check_labels(classes)
    return classes
