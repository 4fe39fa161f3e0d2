"""Inputs of an attack."""

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
    """Model, images, labels and budget of one call of an attack."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    eps: float  # budget in the norm of the attack
    bounds: Bounds  # range of the images
    seed: int
    indices: Sequence[int]  # index of each image, for its random numbers

    def generator(self, place: int) -> torch.Generator:
        """Random generator of the image at a position of the batch; depends only on `seed` and the image's index."""
        return torch.Generator().manual_seed(words("attack", self.seed, self.indices[place])[0])

    def uniform(self) -> Tensor:
        """Uniform random numbers in [−1, 1] in the shape of the images, from the generator of each image."""
        drawn = torch.empty(self.images.shape)
        for place, each in enumerate(drawn):
            each.uniform_(-1, 1, generator=self.generator(place))
        return drawn.to(self.images)


def size_of(change: Tensor, norm: Norm) -> Tensor:
    """Norm of each image's perturbation."""
    return torch.linalg.vector_norm(change.flatten(1), {"linf": math.inf, "l2": 2, "l1": 1}[norm], dim=1)
