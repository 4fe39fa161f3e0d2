"""−log p of every token of a text. The protocol (`Windows`) defines how much preceding text the model sees.

In the paper's protocol a window moves by one token. The first window counts all its positions, each later window only
its last, so every token after the first window is predicted from a full context. A larger stride is cheaper; its
numbers belong to another protocol.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...language.model import LanguageModel

KINDS = ("sliding", "segments")
ROWS = 1024  # positions whose probabilities over the vocabulary are in memory at once


@dataclass(frozen=True)
class Windows:
    """Windows of `context` tokens in which the model reads a text.

    `sliding` windows move by `stride` tokens; `segments` do not overlap.
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
            raise InputError(f"the stride is {self.stride}; expected 1, because segments have no stride")

    @property
    def name(self) -> str:
        """Name of the protocol in records; the paper's is `sliding`."""
        return self.kind if self.stride == 1 else f"{self.kind}, stride {self.stride}"

    def start(self, position: int) -> int:
        """First position of the window that counts `position`; the token predicted there is `targets[position]`."""
        if self.kind == "segments":
            return position // self.context * self.context
        if position < self.context:
            return 0
        return ((position - self.context) // self.stride + 1) * self.stride

    def starting(self, positions: Sequence[int]) -> dict[int, list[int]]:
        """Start of each window -> the positions it counts."""
        found: dict[int, list[int]] = {}
        for position in positions:
            found.setdefault(self.start(position), []).append(position)
        return found


@torch.inference_mode()
def token_losses(
    model: LanguageModel, inputs: Tensor, targets: Tensor, positions: Sequence[int], windows: Windows,
    *, together: int = 32,
) -> Tensor:  # fmt: skip
    """−log p of `targets[i]` given the inputs of its window up to and including i, for each position i, in float64.

    Up to `together` windows of the same length form a batch. Probabilities are computed only at the given positions.
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
    """Batches of up to `together` windows (start, length, positions) of the same length."""
    by_length: dict[int, list[tuple[int, int, list[int]]]] = {}
    for start, counted in windows.items():
        length = min(context, total - start)
        by_length.setdefault(length, []).append((start, length, counted))
    for found in by_length.values():
        for first in range(0, len(found), together):
            yield found[first : first + together]


def perplexity(mean_loss: float) -> float:
    return math.exp(mean_loss) if mean_loss < 700 else math.inf
