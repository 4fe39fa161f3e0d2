"""Blur."""

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .draws import Draws
from .filters import centre_zoom, gaussian, motion, whole_levels


def defocus_blur(images: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    kernel = _disk(*strength).to(images)
    height, width = images.shape[-2:]
    reach = len(kernel) // 2
    padded = F.pad(images, [reach] * 4, mode="reflect")
    size = [-(-side // 32) * 32 for side in padded.shape[-2:]]  # which Fourier transforms are fast at
    spectrum = torch.fft.rfft2(padded, s=size) * torch.fft.rfft2(kernel, s=size)
    return torch.fft.irfft2(spectrum, s=size)[..., 2 * reach :, 2 * reach :][..., :height, :width]


@lru_cache(maxsize=16)
def _disk(radius: float, softness: float) -> Tensor:
    """A disk whose edge a small Gaussian softens; cut to what is not zero."""
    reach = max(8, int(radius))
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = ((line[:, None] ** 2 + line**2) <= radius**2).double()
    offsets = torch.arange(-1, 2) if radius <= 8 else torch.arange(-2, 3)
    edge = torch.exp(-0.5 * (offsets / softness).double() ** 2)
    edge /= edge.sum()
    padded = F.pad((disk / disk.sum())[None, None], [len(offsets) // 2] * 4, mode="reflect")
    kernel = F.conv2d(padded, (edge[:, None] * edge)[None, None])[0, 0]
    seen = kernel[reach].nonzero()
    margin = int(seen[0])
    return kernel[margin : len(line) - margin, margin : len(line) - margin].float()


def glass_blur(images: Tensor, strength: tuple[float, int, int], draws: Draws) -> Tensor:
    deviation, reach, times = strength
    images = whole_levels(gaussian(images, deviation))
    for _ in range(times):
        images = _scatter(images, reach, draws)
    return gaussian(images, deviation)


def _scatter(images: Tensor, reach: int, draws: Draws) -> Tensor:
    """Every pixel takes the value of a random neighbour, one pixel after the other, from the last to the first.

    (The published code means to swap the two, but assigns views of one array, so the neighbour keeps its value.) Where
    the neighbour came first, what it had taken is taken: chains, whose length halves with every look at all of them.
    """
    batch, channels, height, width = images.shape
    rows, columns = torch.arange(height - reach, reach, -1), torch.arange(width - reach, reach, -1)
    rows, columns = rows.flip(0).to(images.device), columns.flip(0).to(images.device)
    offsets = draws.integers(-reach, reach, 2, len(rows), len(columns))
    own = rows[:, None] * width + columns
    neighbour = own + offsets[:, 0] * width + offsets[:, 1]
    size = height * width
    source = torch.arange(size, device=images.device).repeat(batch, 1) + size  # from `size` on: the value before
    taken = torch.zeros(size, dtype=torch.bool, device=images.device)
    taken[own.flatten()] = True
    earlier = taken[neighbour] & (neighbour > own)
    source[:, own.flatten()] = torch.where(earlier, neighbour, neighbour + size).flatten(1)
    while (open_ := source < size).any():
        source = torch.where(open_, source.gather(1, source.clamp(max=size - 1)), source)
    return images.flatten(2).gather(2, (source - size)[:, None].expand(-1, channels, -1)).view_as(images)


def motion_blur(images: Tensor, strength: tuple[int, float], draws: Draws) -> Tensor:
    radius, deviation = strength
    return motion(images, radius, deviation, draws.uniform(low=-45, high=45))


def zoom_blur(images: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    height, width = images.shape[-2:]
    factors = np.arange(1, *strength)
    blurred = images.clone()
    for factor in factors:
        blurred += centre_zoom(images, factor)[..., :height, :width]
    return blurred / (len(factors) + 1)
