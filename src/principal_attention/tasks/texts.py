"""Texts for `principal evaluate` and `principal analyze`; the latter takes separate texts or pieces of equal length."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..adapt.describe import describe, name_of
from ..adapt.named import ModelRef
from ..analysis.inputs import Shown
from ..data.splits import HELD
from ..errors import InputError
from ..language.classifier import pad
from ..language.load import head_width, load_encoder, most_tokens
from ..language.texts import Texts, open_split, open_splits
from ..plumbing.layout import RECIPE
from ..plumbing.seeds import seed_all
from .kind import DataChoice
from .run import read_recipe


def open_texts(model: ModelRef, choice: DataChoice, *, labelled: bool) -> tuple[Texts, str]:
    """The evaluation texts, and their name in records. Default for a run: its validation texts."""
    how: dict[str, Any] = {"labelled": labelled, "options": ("--column", "--label")}
    columns: dict[str, Any] = {
        "text": getattr(choice.options, "column", None),
        "label": getattr(choice.options, "label", None),
    }
    if choice.source is not None:
        found = open_split(choice.source, choice.split, **columns, **how)
        return found, f"{Path(choice.source).name}/{found.name}"
    if not (model.folder / RECIPE).is_file():
        raise InputError("--data is missing: expected a hub name, or a parquet file or folder with texts")
    given = read_recipe(model.folder).data
    if "text" not in type(given).model_fields:
        raise InputError(f"the recipe in {model.given} does not train on texts; name texts with --data")
    asked = given.splits | {key: x for key, x in columns.items() if x is not None}
    if choice.split is None or (choice.split == HELD and given.holdout):
        found = open_splits(given.source, roles=("validation",), **how, **asked)["validation"]
        part = f", {len(found)} texts" if len(found) == given.limit else ""
        return found, f"{Path(given.source).name}/{found.name}{part}"
    one = {key: asked[key] for key in ("subset", "text", "label") if key in asked}
    found = open_split(given.source, choice.split, **how, **one)
    return found, f"{Path(given.source).name}/{found.name}"


def open_inputs(model: ModelRef, choice: DataChoice, *, count: int, device: torch.device | str) -> "TextInputs":
    """Texts for `principal analyze`; `choice.options` is a `Showing`."""
    found, data = open_texts(model, choice, labelled=False)
    return TextInputs(model, found.texts, data, count=count, pack=choice.options.pack, device=device)


class TextInputs:
    unit = "texts"

    def __init__(
        self, model: ModelRef | str, texts: Sequence[str], data: str, *, count: int, pack: int | None = None,
        device: torch.device | str = "cpu",
    ):  # fmt: skip
        """`data` is the name of the texts in records."""
        self.tokenizer, network = load_encoder(model)
        self.network = network.to(device).requires_grad_(False)
        self.name, self.data, self.device = name_of(ModelRef.of(model), network), data, device
        self.robustify = describe(network)
        self.contents = hashlib.sha256(repr((list(texts), pack)).encode()).hexdigest()[:8]
        width, most = head_width(network), most_tokens(network)
        if pack is not None and not width + 2 <= pack <= most:
            raise InputError(f"--pack is {pack}; expected from {width + 2} to {most} tokens for this model")
        if pack:
            pieces = _packed(texts, self.tokenizer, pack)
            hint = f"together they have fewer than the {pack} tokens of one piece"
        else:
            pieces = _sentences(texts, self.tokenizer, at_least=width + 2, at_most=most)
            hint = f"none has the {width + 2} tokens that heads of {width} columns need; --pack joins texts into pieces"
        self.pieces = [piece for piece, _ in zip(pieces, range(count), strict=False)]
        self.examples = list(range(len(self.pieces)))
        if not self.pieces:
            raise InputError(f"the texts of {self.data} are too short: {hint}")

    def fingerprint(self) -> str:
        """Hash of all texts and `pack`; does not depend on the number of pieces analysed."""
        return self.contents

    def __len__(self) -> int:
        return len(self.pieces)

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Shown]:
        for number in wanted:
            examples = list(range(number * size, min(len(self), (number + 1) * size)))
            tokens, mask = pad([self.pieces[i] for i in examples], padding=0)
            given = {"input_ids": tokens, "attention_mask": mask.long()}
            yield Shown(number, examples, {name: each.to(self.device) for name, each in given.items()})

    def show(self, network: nn.Module, batch: Shown) -> None:
        network(**batch.given)

    def untrained(self, seed: int, turn: int) -> nn.Module:
        seed_all("null", seed, turn)
        network: Any = type(self.network)
        return network(self.network.config).to(self.device).eval().requires_grad_(False)  # type: ignore[no-any-return]


def _sentences(texts: Iterable[str], tokenizer: Any, *, at_least: int, at_most: int) -> Iterator[list[int]]:
    """Tokens of each text with special tokens, truncated to `at_most`; texts below `at_least` tokens are left out."""
    for text in texts:
        tokens, _ = _encoded(tokenizer, text, truncation=True, max_length=at_most)
        if len(tokens) >= at_least:
            yield tokens


def _packed(texts: Iterable[str], tokenizer: Any, length: int) -> Iterator[list[int]]:
    """Concatenated texts in pieces of exactly `length` tokens, each with special tokens at its ends."""
    waiting: list[int] = []
    for text in texts:
        tokens, marks = _encoded(tokenizer, text)
        before, after = _around(tokens, marks)
        room = length - len(before) - len(after)
        waiting += [token for token, mark in zip(tokens, marks, strict=True) if not mark]
        while len(waiting) >= room:
            piece, waiting = waiting[:room], waiting[room:]
            yield [*before, *piece, *after]


def _encoded(tokenizer: Any, text: str, **options: Any) -> tuple[list[int], list[int]]:
    """The tokens of a text, and a mask that is 1 at special tokens."""
    found = tokenizer(text, return_special_tokens_mask=True, verbose=False, **options)
    return found["input_ids"], found["special_tokens_mask"]


def _around(tokens: list[int], marks: list[int]) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text; for an empty text, the first half of them and the rest."""
    if all(marks):
        half = -(-len(tokens) // 2)
        return tokens[:half], tokens[half:]
    first, last = marks.index(0), len(marks) - marks[::-1].index(0)
    return tokens[:first], tokens[last:]
