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
        told = (
            f"several columns hold text: {', '.join(found)}; name one with --column"
            if found
            else "no column holds text"
        )
        raise InputError(f"{told}; the columns of {source} are {', '.join(rows.features)}")
    if column is not None and column not in found:
        raise InputError(f"--column is {column!r}; expected one with texts, of {source} {', '.join(found) or 'none'}")
    return rows[column or found[0]], name


_STRINGS = ("string", "large_string")


def sentences(texts: Iterable[str], tokenizer: Any, *, at_least: int, at_most: int) -> Iterator[list[int]]:
    """Each text by itself with the tokenizer's marks around it, cut to `at_most` tokens; shorter ones are left out."""
    for number, text in enumerate(texts):
        tokens, _ = _encoded(tokenizer, text, number, truncation=True, max_length=at_most)
        if len(tokens) >= at_least:
            yield tokens


def packed(texts: Iterable[str], tokenizer: Any, length: int) -> Iterator[list[int]]:
    """Texts one after the other in pieces of exactly `length` tokens, the tokenizer's marks around each piece."""
    waiting: list[int] = []
    for number, text in enumerate(texts):
        tokens, marks = _encoded(tokenizer, text, number)
        before, after = _around(tokens, marks)
        room = length - len(before) - len(after)
        waiting += [token for token, mark in zip(tokens, marks, strict=True) if not mark]
        while len(waiting) >= room:
            piece, waiting = waiting[:room], waiting[room:]
            yield [*before, *piece, *after]


def _encoded(tokenizer: Any, text: Any, number: int, **options: Any) -> tuple[list[int], list[int]]:
    """A text's tokens, and of each whether it is a mark of the tokenizer's own."""
    if not isinstance(text, str):
        raise InputError(f"text {number} is {text!r}; expected a string")
    found = tokenizer(text, return_special_tokens_mask=True, verbose=False, **options)
    return found["input_ids"], found["special_tokens_mask"]


def _around(tokens: list[int], marks: list[int]) -> tuple[list[int], list[int]]:
    """The marks before and after a text; of an empty one, the first half comes before."""
    if all(marks):
        half = -(-len(tokens) // 2)
        return tokens[:half], tokens[half:]
    first, last = marks.index(0), len(marks) - marks[::-1].index(0)
    return tokens[:first], tokens[last:]
