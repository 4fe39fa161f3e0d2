"""Blur corruptions."""

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
    size = [-(-side // 32) * 32 for side in padded.shape[-2:]]  # multiples of 32, for which Fourier transforms are fast
    spectrum = torch.fft.rfft2(padded, s=size) * torch.fft.rfft2(kernel, s=size)
    return torch.fft.irfft2(spectrum, s=size)[..., 2 * reach :, 2 * reach :][..., :height, :width]


@lru_cache(maxsize=16)
def _disk(radius: float, softness: float) -> Tensor:
    """Kernel of a disk with edges softened by a small Gaussian, cropped to its nonzero part."""
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
    """Images in which each pixel, from the last to the first, is replaced by a random neighbour.

    The published code is meant to swap the two pixels, but it assigns views of one array, so the neighbour keeps its
    value. Here a whole row is replaced at once. When a pixel is replaced, the rows below have changed already, and the
    rows above have not; of its own row only the pixels to its right have changed. If its neighbour is one of them, it
    takes the value that this neighbour took: the chain of neighbours is followed to its end.
    """
    batch, channels, height, width = images.shape
    first, rows, columns = reach + 1, height - 2 * reach, width - 2 * reach
    down, right = draws.integers(-reach, reach, 2, rows, columns).unbind(1)
    place = torch.arange(columns, device=images.device)
    asked = torch.where((down == 0) & (right > 0) & (place + right < columns), place + right, place)
    while not asked.equal(further := asked.gather(-1, asked)):  # each round halves the chains
        asked = further
    own = (first + torch.arange(rows, device=images.device))[:, None] * width + first + place
    neighbour = (own + down * width + right).gather(-1, asked)
    source = torch.arange(height * width, device=images.device).repeat(batch, 1)
    for row in reversed(range(rows)):
        begin = (first + row) * width + first
        source[:, begin : begin + columns] = source.gather(1, neighbour[:, row])
    return images.flatten(2).gather(2, source[:, None].expand(-1, channels, -1)).view_as(images)


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
