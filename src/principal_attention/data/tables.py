"""Open tables of examples with `datasets`: a data set of the hub, or parquet files named after their split."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pyarrow.parquet

from ..errors import InputError
from ..plumbing.hub import UNREACHABLE, hub_is_unreachable

VALIDATION = ("validation", "val", "valid", "dev", "test")  # names of the validation split, in this order


class RawSplit(NamedTuple):
    """Split with all its columns."""

    rows: Any  # a Dataset, an IterableDataset if streaming, None for an empty file
    length: int | None  # number of examples; None for a stream of unknown length


RawSplits = dict[str, RawSplit]


def open_tables(
    source: str, subset: str | None, names: Iterable[str], *, expected: str, streaming: bool = False,
    other: Callable[[Path, tuple[str, ...]], RawSplits | None] | None = None,
) -> RawSplits:  # fmt: skip
    """Splits of a source: a data set of the hub, a parquet file, or a folder.

    Args:
        subset: configuration of a data set of the hub (also written NAME:SUBSET), or subfolder of a folder.
        names: names of splits to look for in the names of files.
        expected: kinds of sources that can be opened, for error messages.
        other: function that opens a folder in another format; returns None for a folder of parquet files.
    """
    path, names = Path(source).expanduser(), tuple(names)
    if not path.exists():
        if path.is_absolute() or source.startswith((".", "~")):
            raise InputError(f"there is nothing at {source}; expected {expected}")
        name, _, told = source.partition(":")
        return from_hub(name, told or subset, streaming=streaming)
    if subset is not None and (path / subset).is_dir():
        path = path / subset
    if path.is_file() and path.suffix != ".parquet":
        raise InputError(f"{source} is a file but not parquet; expected {expected}")
    if other is not None and path.is_dir() and (found := other(path, names)) is not None:
        return found
    files = parquet_files(path, names)
    if not files:
        raise InputError(f"{source} holds no parquet; expected {expected}")
    return from_parquet(source, files, streaming=streaming)


def pick_column(
    given: str | None, features: Any, found: list[str], *, what: str, option: str, kind: str,
    fit: Iterable[str] | None = None,
) -> str:  # fmt: skip
    """Name of the column to use: `given`, else the only one in `found`.

    Args:
        features: columns of the table, with their types.
        found: columns that can be chosen by default.
        what, option, kind: role of the column, option that names it, and required content, for error messages.
        fit: columns that `given` may name. Default: `found`.
    """
    if given is not None:
        if given not in features:
            raise InputError(f"{option} is {given!r}; the columns are {', '.join(features)}")
        if given not in (found if fit is None else fit):
            raise InputError(f"{option} is {given!r}, which holds {features[given]}; expected {kind}")
        return given
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"several columns could be the {what}: {', '.join(found)}; name it with {option}=COLUMN")
    held = ", ".join(
        f"{name} ({getattr(feature, 'dtype', type(feature).__name__)})" for name, feature in features.items()
    )
    raise InputError(f"no column holds the {what}: expected {kind}, and the columns are {held}")


def label_column(features: Any, given: str | None, option: str = "data.label") -> tuple[str, tuple[str, ...] | None]:
    """Name of the column of labels, and the names of the classes; None if it has none."""
    named = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    whole = [name for name, f in features.items() if str(getattr(f, "dtype", "")).startswith(("int", "uint"))]
    column = pick_column(
        given, features, named or whole, what="label", option=option, kind="whole numbers", fit={*named, *whole}
    )
    return column, tuple(features[column].names) if column in named else None


def from_hub(name: str, subset: str | None = None, *, streaming: bool = False) -> RawSplits:
    if hub_is_unreachable():
        datasets.config.HF_HUB_OFFLINE = True
    return measured(_load(f"the data set {name}", name, subset, streaming=streaming))


def from_parquet(source: str, files: dict[str, list[str]], *, streaming: bool = False) -> RawSplits:
    """Splits from parquet files, each opened separately: together, all would get the class names of the first."""

    def table(found: list[str]) -> RawSplit:
        try:
            length = sum(pyarrow.parquet.read_metadata(file).num_rows for file in found)
        except (OSError, pyarrow.ArrowException) as wrong:
            raise InputError(f"{source} cannot be opened: {wrong}") from wrong
        options = {"streaming": streaming, "data_files": found, "split": "train"}
        return RawSplit(_load(source, "parquet", None, **options) if length else None, length)

    return {name: table(found) for name, found in files.items()}


def parquet_files(path: Path, names: Iterable[str] = ()) -> dict[str, list[str]]:
    """Parquet files at a path by split, such as train-00000.parquet, data/test.parquet or val/0.parquet."""
    files = (
        [path]
        if path.is_file()
        else sorted(found for depth in ("", "*/", "*/*/") for found in path.glob(f"{depth}*.parquet"))
    )
    known = dict.fromkeys([*names, "train", *VALIDATION])
    splits: dict[str, list[str]] = {}
    for file in files:
        words = re.split(r"[^A-Za-z0-9]+", str(file.relative_to(path)) if file != path else "")
        split = next((name for name in known if name in words), "train")
        splits.setdefault(split, []).append(str(file))
    return splits


def choose(tables: RawSplits, name: str | None, source: str) -> tuple[str, RawSplit]:
    """Name and content of a split that is not empty. Default of `name`: the validation split, else the only split."""
    if name is not None and name not in tables:
        raise InputError(f"{source} has no split {name!r}; it has {', '.join(tables)}")
    chosen = name or next((each for each in VALIDATION if each in tables), None)
    if chosen is None:
        if len(tables) > 1:
            raise InputError(f"{source} has the splits {', '.join(tables)}; name one with --split")
        (chosen,) = tables
    if tables[chosen].length == 0:
        raise InputError(f"the split {chosen} of {source} is empty")
    return chosen, tables[chosen]


def beside(tables: RawSplits, train: str, source: str, what: str) -> str:
    """Name of the validation split of a source. `what`: kind of examples, for the error message."""
    found = next((name for name in VALIDATION if name in tables and name != train), None)
    if found is None:
        raise InputError(
            f"{source} has no split for validation, only {', '.join(tables)}; "
            f"name one with data.validation, or hold out {what} of the training split with data.holdout"
        )
    return found


def measured(tables: dict[str, Any]) -> RawSplits:
    """Splits with their lengths."""

    def length(name: str, rows: Any) -> int | None:
        if hasattr(rows, "__len__"):
            return len(rows)
        told = (rows.info.splits or {}).get(name)  # stream from the hub
        return told.num_examples if told else None

    return {name: RawSplit(rows, length(name, rows)) for name, rows in tables.items()}


def _load(what: str, name: str, subset: str | None, **options: Any) -> Any:
    try:
        return datasets.load_dataset(name, subset, **options)
    except Exception as wrong:  # any error of the hub, the network, the file system or the format
        remote = what.startswith("the data set") and hub_is_unreachable()
        raise InputError(
            f"{what} cannot be opened: {UNREACHABLE if remote else ' '.join(str(wrong).split())}"
        ) from wrong
