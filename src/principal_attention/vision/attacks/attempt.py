"""What every attack is given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ...plumbing.seeds import words

Norm = Literal["linf", "l2", "l1"]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Attempt:
    """Images that a model should take for something else than their labels."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    eps: float
    bounds: Bounds
    seed: int
    indices: Sequence[int]

    def generator(self, place: int) -> torch.Generator:
        """The random numbers of one image, whatever batch it is in."""
        return torch.Generator().manual_seed(words("attack", self.seed, self.indices[place])[0])

    def uniform(self) -> Tensor:
        """Numbers from −1 to 1, each image's its own."""
        drawn = torch.empty(self.images.shape)
        for place, each in enumerate(drawn):
            each.uniform_(-1, 1, generator=self.generator(place))
        return drawn.to(self.images)


def size_of(change: Tensor, norm: Norm) -> Tensor:
    """Of each image's change."""
    return torch.linalg.vector_norm(change.flatten(1), {"linf": math.inf, "l2": 2, "l1": 1}[norm], dim=1)
