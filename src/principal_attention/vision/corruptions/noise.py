"""Noise corruptions."""

from torch import Tensor

from .draws import Draws


def gaussian_noise(images: Tensor, deviation: float, draws: Draws) -> Tensor:
    return draws.normal(*images.shape[1:]).mul_(deviation).add_(images)


def shot_noise(images: Tensor, photons: float, draws: Draws) -> Tensor:
    return draws.poisson(images * photons) / photons


def impulse_noise(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Set a share of the values to 0 or 1, with equal probability."""
    drawn = draws.uniform(*images.shape[1:])
    return images.masked_fill(drawn < share, 0.0).masked_fill_(drawn < share / 2, 1.0)
