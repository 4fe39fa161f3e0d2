"""What is shown to a model while its heads are looked at: numbered images or texts, and the same network untrained."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .._random import seed_all
from ..errors import InputError
from ..evaluation.images import Images
from ..evaluation.subject import Subject, name_of
from ..language.classifier import pad
from ..language.load import head_width, load_encoder, most_tokens
from ..language.texts import open_split, packed, sentences
from ..vision.models.load import untrained_classifier


class Batch(NamedTuple):
    number: int
    examples: list[int]  # numbers in the data, which random numbers depend on
    given: dict[str, Tensor]

    def only(self, rows: Sequence[int]) -> "Batch":
        given = {name: tensor[list(rows)] for name, tensor in self.given.items()}
        return Batch(self.number, [self.examples[row] for row in rows], given)


class Inputs(Protocol):
    """A model and what it is shown."""

    name: str  # of the model, in records
    data: str
    unit: str  # what an example is called
    network: nn.Module
    examples: list[int]  # their numbers in the data, in the order of the batches

    def __len__(self) -> int: ...

    def fingerprint(self) -> str:
        """Of the examples: others of the same name have another."""

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Batch]: ...

    def show(self, network: nn.Module, batch: Batch) -> None: ...

    def untrained(self, seed: int, turn: int) -> nn.Module:
        """The same network at its initialisation, of which there are several."""


class ImageInputs:
    unit = "images"

    def __init__(self, subject: Subject, images: Images, data: str, count: int):
        self.subject, self.images, self.data = subject, images, data
        self.name, self.network = subject.name, subject.network
        self.examples = images.order[:count]

    def __len__(self) -> int:
        return len(self.examples)

    def fingerprint(self) -> str:
        return self.images.fingerprint()

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Batch]:
        for batch in self.images.batches(size, wanted, 0):
            kept = batch.first(max(0, len(self) - batch.number * size))
            seen = self.subject.normalised(kept.images.to(self.subject.on_pixels.mean.device))
            yield Batch(batch.number, kept.indices, {"pixels": seen})

    def show(self, network: nn.Module, batch: Batch) -> None:
        network(batch.given["pixels"])

    def untrained(self, seed: int, turn: int) -> nn.Module:
        seed_all("null", seed, turn)
        return untrained_classifier(self.subject.classifier)


class TextInputs:
    unit = "texts"

    def __init__(
        self, model: str, source: str, *, split: str | None = None, column: str | None = None, count: int,
        pack: int | None = None, device: torch.device | str = "cpu",
    ):  # fmt: skip
        self.tokenizer, network = load_encoder(model)
        self.network = network.to(device).requires_grad_(False)
        self.name, self.device = name_of(model), device
        found = open_split(source, split, labelled=False, text=column, options=("--column", "--label"))
        texts = found.texts
        self.data = f"{Path(source).name}/{found.name}"
        width, most = head_width(network), most_tokens(network)
        if pack is not None and not width + 2 <= pack <= most:
            raise InputError(f"--pack is {pack}; expected from {width + 2} to {most} tokens for this model")
        if pack:
            pieces, hint = packed(texts, self.tokenizer, pack), f"all of it is less than the {pack} tokens of one piece"
        else:
            pieces = sentences(texts, self.tokenizer, at_least=width + 2, at_most=most)
            hint = f"none has the {width + 2} tokens that heads of {width} columns need; --pack joins texts to pieces"
        self.pieces = [piece for piece, _ in zip(pieces, range(count), strict=False)]
        self.examples = list(range(len(self.pieces)))
        if not self.pieces:
            raise InputError(f"the texts of {self.data} are too short: {hint}")

    def fingerprint(self) -> str:
        return hashlib.sha256(str(self.pieces[0]).encode()).hexdigest()[:8]

    def __len__(self) -> int:
        return len(self.pieces)

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Batch]:
        for number in wanted:
            examples = list(range(number * size, min(len(self), (number + 1) * size)))
            tokens, mask = pad([self.pieces[i] for i in examples], padding=0)
            given = {"input_ids": tokens, "attention_mask": mask.long()}
            yield Batch(number, examples, {name: each.to(self.device) for name, each in given.items()})

    def show(self, network: nn.Module, batch: Batch) -> None:
        network(**batch.given)

    def untrained(self, seed: int, turn: int) -> nn.Module:
        seed_all("null", seed, turn)
        network: Any = type(self.network)
        return network(self.network.config).to(self.device).eval().requires_grad_(False)  # type: ignore[no-any-return]
