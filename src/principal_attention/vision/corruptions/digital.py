"""Digital corruptions, except JPEG compression."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .draws import Draws
from .filters import gaussian


def brightness(images: Tensor, more: float, draws: Draws) -> Tensor:
    """Raise the value V of HSV by `more`, which scales all channels alike; black becomes grey."""
    value = images.amax(1, keepdim=True)
    raised = (value + more).clamp(max=1)
    return torch.where(value > 0, images * (raised / value), raised)


def contrast(images: Tensor, kept: float, draws: Draws) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * kept + mean


def elastic_transform(images: Tensor, strength: tuple[float, float, float], draws: Draws) -> Tensor:
    distance, smoothness, corners = strength
    height, width = images.shape[-2:]
    if corners:
        images = _sample(images, *_affine(height, width, corners * height, draws), twice=False)
    if not distance:
        return images
    shifts = draws.uniform(2, height, width, low=-1, high=1)
    shifts = distance * height * gaussian(shifts, smoothness * height, border="reflect", truncate=3.0)
    down, across = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return _sample(images, across.to(images) + shifts[:, 0], down.to(images) + shifts[:, 1], twice=True)


def _sample(images: Tensor, across: Tensor, down: Tensor, *, twice: bool) -> Tensor:
    """Images sampled bilinearly at coordinates in pixels, mirrored at the border. `twice`: repeat the edge pixel."""
    height, width = images.shape[-2:]
    if twice:
        across, down = (2 * across + 1) / width - 1, (2 * down + 1) / height - 1
    else:
        across, down = 2 * across / (width - 1) - 1, 2 * down / (height - 1) - 1
    return F.grid_sample(images, torch.stack([across, down], -1), padding_mode="reflection", align_corners=not twice)


def _affine(height: int, width: int, reach: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Source coordinates (x, y) of each pixel under the affine map that moves three corners of a central square by up
    to `reach` pixels."""
    middle, half = torch.tensor([height // 2, width // 2]), min(height, width) // 3
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]])
    corners = (middle + half * signs).double().to(draws.device)
    moved = corners + draws.uniform(3, 2, low=-reach, high=reach)
    ones = torch.ones(3, 1, dtype=torch.float64, device=draws.device)
    back = torch.linalg.solve(torch.cat([moved, ones.expand(len(moved), -1, -1)], -1), corners)
    down, across = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack([across, down, torch.ones_like(down)], -1).double().to(draws.device)
    found = (places.flatten(0, 1) @ back).view(-1, height, width, 2).float()
    return found[..., 0], found[..., 1]


def pixelate(images: Tensor, scale: float, draws: Draws) -> Tensor:
    """Downsample by box filtering, then upsample by repeating pixels."""
    height, width = images.shape[-2:]
    few = [int(side * scale) for side in (height, width)]
    across = _rounded(images @ _boxes(width, few[1]).to(images).mT)
    small = _rounded(_boxes(height, few[0]).to(images) @ across)
    down, right = (
        ((torch.arange(side, device=images.device) + 0.5) * count / side).long()
        for side, count in zip((height, width), few, strict=True)
    )
    return small[:, :, down][..., right]


def _rounded(images: Tensor) -> Tensor:
    """Images rounded half up to 8-bit levels, as PIL does after resizing along each axis."""
    return images.mul(255).add_(0.5 + 1e-4).floor_().div_(255)


@lru_cache(maxsize=32)
def _boxes(side: int, count: int) -> Tensor:
    """Matrix (count, side) of a box filter: row i averages the pixels whose centres are inside box i."""
    width = side / count
    centres = (torch.arange(count, dtype=torch.float64)[:, None] + 0.5) * width
    distance = (torch.arange(side, dtype=torch.float64) + 0.5 - centres) / width
    inside = ((distance > -0.5) & (distance <= 0.5)).double()
    return (inside / inside.sum(1, keepdim=True)).float()
