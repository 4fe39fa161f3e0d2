"""What is shown to a model while its heads are looked at: numbered examples, and the same network untrained."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor, nn


class Shown(NamedTuple):
    number: int
    examples: list[int]  # numbers in the data, which random numbers depend on
    given: dict[str, Tensor]

    def only(self, rows: Sequence[int]) -> "Shown":
        given = {name: tensor[list(rows)] for name, tensor in self.given.items()}
        return Shown(self.number, [self.examples[row] for row in rows], given)


class Inputs(Protocol):
    """A model and what it is shown."""

    name: str  # of the model, in records
    data: str
    unit: str  # what an example is called
    network: nn.Module
    robustify: str | None  # the RPC-Attention it holds, in the words of --robustify
    examples: list[int]  # their numbers in the data, in the order of the batches

    def __len__(self) -> int: ...

    def fingerprint(self) -> str:
        """Of the examples: others of the same name have another."""

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Shown]: ...

    def show(self, network: nn.Module, batch: Shown) -> None: ...

    def untrained(self, seed: int, turn: int) -> nn.Module:
        """The same network at its initialisation, of which there are several."""
