"""Texts of a source, and tokens of texts."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .._tables import choose, from_hub, from_parquet, parquet_files
from ..errors import InputError


def open_texts(source: str, split: str | None = None, *, column: str | None = None) -> tuple[Any, str]:
    """The texts of a split, in order, and the split's name; a hub name, a parquet file or a folder of them."""
    path = Path(source).expanduser()
    if path.exists():
        files = parquet_files(path, (split,) if split else ())
        if not files:
            raise InputError(f"{source} holds no parquet; expected a table with a column of texts")
        tables = from_parquet(source, files)
    elif path.is_absolute() or source.startswith((".", "~")):
        raise InputError(f"there is nothing at {source}; expected a parquet file, or a folder of them")
    else:
        tables = from_hub(source)
    name = choose(tables, split, source)
    rows = tables[name].rows
    found = [each for each, feature in rows.features.items() if getattr(feature, "dtype", "") in _STRINGS]
    if column is None and len(found) != 1:
        told = f"several columns hold text: {', '.join(found)}" if found else "no column holds text"
        raise InputError(f"{told}; the columns of {source} are {', '.join(rows.features)}")
    return rows[column or found[0]], name


_STRINGS = ("string", "large_string")


def sentences(texts: Iterable[str], tokenizer: Any, *, at_least: int, at_most: int) -> Iterator[list[int]]:
    """Each text by itself with the tokenizer's marks around it, cut to `at_most` tokens; shorter ones are left out."""
    for text in texts:
        tokens = tokenizer(text, truncation=True, max_length=at_most)["input_ids"]
        if len(tokens) >= at_least:
            yield tokens


def packed(texts: Iterable[str], tokenizer: Any, length: int) -> Iterator[list[int]]:
    """Texts one after the other in pieces of exactly `length` tokens, the tokenizer's marks around each piece."""
    before, after = _marks(tokenizer)
    room = length - len(before) - len(after)
    waiting: list[int] = []
    for text in texts:
        waiting += tokenizer(text, add_special_tokens=False)["input_ids"]
        while len(waiting) >= room:
            piece, waiting = waiting[:room], waiting[room:]
            yield [*before, *piece, *after]


def _marks(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a text."""
    bare, whole = (tokenizer("a", add_special_tokens=marked)["input_ids"] for marked in (False, True))
    start = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    return whole[:start], whole[start + len(bare) :]
