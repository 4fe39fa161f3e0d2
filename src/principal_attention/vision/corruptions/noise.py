"""Noise."""

from torch import Tensor

from .draws import Draws


def gaussian_noise(images: Tensor, deviation: float, draws: Draws) -> Tensor:
    return draws.normal(*images.shape[1:]).mul_(deviation).add_(images)


def shot_noise(images: Tensor, photons: float, draws: Draws) -> Tensor:
    return draws.poisson(images * photons) / photons


def impulse_noise(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Salt and pepper in equal parts."""
    drawn = draws.uniform(*images.shape[1:])
    return images.masked_fill(drawn < share, 0.0).masked_fill_(drawn < share / 2, 1.0)
