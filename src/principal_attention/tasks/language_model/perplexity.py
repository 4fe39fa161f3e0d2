"""−log p of every token of a text, under a protocol that says how much of the text before it the model sees.

The paper's is a window that slides by one token: its first place counts all positions, then each only the last, so
every token has as much before it as the model's context holds. A larger stride is cheaper, and another protocol.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...language.model import LanguageModel

KINDS = ("sliding", "segments")
ROWS = 1024  # whose probabilities of the whole vocabulary are in memory at once


@dataclass(frozen=True)
class Windows:
    """Which tokens the model sees before the one it is asked for.

    `sliding` windows move by `stride`; `segments` stand side by side, each read from its beginning.
    """

    kind: str = "sliding"
    context: int = 256
    stride: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"the protocol is {self.kind!r}; expected one of {', '.join(KINDS)}")
        if not 1 <= self.stride <= self.context:
            raise InputError(f"the stride is {self.stride}; expected from 1 to the context of {self.context} tokens")
        if self.kind == "segments" and self.stride != 1:
            raise InputError("segments stand side by side and have no stride")

    @property
    def name(self) -> str:
        """Of records: the paper's protocol is `sliding` alone."""
        return self.kind if self.stride == 1 else f"{self.kind}, stride {self.stride}"

    def start(self, position: int) -> int:
        """Where the window begins in which a position, the input before the token asked for, is counted."""
        if self.kind == "segments":
            return position // self.context * self.context
        if position < self.context:
            return 0
        return ((position - self.context) // self.stride + 1) * self.stride

    def starting(self, positions: Sequence[int]) -> dict[int, list[int]]:
        """The positions, by where their window begins."""
        found: dict[int, list[int]] = {}
        for position in positions:
            found.setdefault(self.start(position), []).append(position)
        return found


@torch.inference_mode()
def token_losses(
    model: LanguageModel, inputs: Tensor, targets: Tensor, positions: Sequence[int], windows: Windows,
    *, together: int = 32,
) -> Tensor:  # fmt: skip
    """−log p of `targets[i]` after the window of `inputs` up to and with i, for each position i, in float64.

    Windows of the same length are computed together, and the vocabulary only where it is asked for.
    """
    losses = torch.zeros(len(positions), dtype=torch.float64)
    order = {position: number for number, position in enumerate(positions)}
    for batch in _batches(windows.starting(positions), len(inputs), windows.context, together):
        tokens = torch.stack([inputs[start : start + length] for start, length, _ in batch]).long()
        hidden = model.hidden(model.embed(tokens))
        rows = [(row, position) for row, (_, _, counted) in enumerate(batch) for position in counted]
        for first in range(0, len(rows), ROWS):
            part = rows[first : first + ROWS]
            asked = hidden[[row for row, _ in part], [position - batch[row][0] for row, position in part]]
            wanted = targets[[position for _, position in part]].long()
            found = model.head.losses(asked, model.embedding.weight, wanted).double().cpu()
            losses[[order[position] for _, position in part]] = found
    return losses


def _batches(
    windows: dict[int, list[int]], total: int, context: int, together: int
) -> Iterator[list[tuple[int, int, list[int]]]]:
    """(start, length, positions), up to `together` of one length at a time."""
    by_length: dict[int, list[tuple[int, int, list[int]]]] = {}
    for start, counted in windows.items():
        length = min(context, total - start)
        by_length.setdefault(length, []).append((start, length, counted))
    for found in by_length.values():
        for first in range(0, len(found), together):
            yield found[first : first + together]


def perplexity(mean_loss: float) -> float:
    return math.exp(mean_loss) if mean_loss < 700 else math.inf
