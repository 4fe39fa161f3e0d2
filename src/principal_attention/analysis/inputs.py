"""Inputs of an analysis: a model, numbered examples, and the same network untrained."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor, nn


class Shown(NamedTuple):
    """A batch of examples."""

    number: int  # of the batch, from 0
    examples: list[int]  # numbers of the examples in the data, which seed the random null models
    given: dict[str, Tensor]  # arguments of the model, by name

    def only(self, rows: Sequence[int]) -> "Shown":
        """The batch with these rows only."""
        given = {name: tensor[list(rows)] for name, tensor in self.given.items()}
        return Shown(self.number, [self.examples[row] for row in rows], given)


class Inputs(Protocol):
    """A model and the examples it is analysed on."""

    name: str  # name of the model in records
    data: str  # name of the data in records
    unit: str  # plural noun for examples, such as images
    network: nn.Module
    robustify: str | None  # RPC-Attention of the network in the syntax of --robustify; None without
    examples: list[int]  # numbers of the examples in the data, in the order of the batches

    def __len__(self) -> int:
        """Number of examples."""

    def fingerprint(self) -> str:
        """Hash of the examples; differs when the examples differ."""

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Shown]:
        """The batches with the numbers `wanted`, of `size` examples each."""

    def show(self, network: nn.Module, batch: Shown) -> None:
        """Run the network on a batch."""

    def untrained(self, seed: int, turn: int) -> nn.Module:
        """The same network with random weights, which depend on `seed` and `turn`."""
