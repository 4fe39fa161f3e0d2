"""Filters used by several corruptions. Separable filters are matrices, which include the handling of the border."""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


def along_both(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Product rows @ image @ columnsᵀ for each channel of each image."""
    return rows.to(images) @ (images @ columns.to(images).mT)


def gaussian(images: Tensor, deviation: float, *, border: str = "nearest", truncate: float = 4.0) -> Tensor:
    """Gaussian blur, as `scipy.ndimage.gaussian_filter`. `border`: "nearest", or "reflect" with a repeated edge."""
    height, width = images.shape[-2:]
    rows, columns = (_gaussian_matrix(side, deviation, border, truncate) for side in (height, width))
    return along_both(images, rows, columns)


@lru_cache(maxsize=32)
def _gaussian_matrix(side: int, deviation: float, border: str, truncate: float) -> Tensor:
    radius = int(truncate * deviation + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets / deviation).double() ** 2) if radius else torch.ones(1, dtype=torch.float64)
    places = torch.arange(side)[:, None] + offsets
    if border == "nearest":
        places = places.clamp(0, side - 1)
    else:
        places = places.remainder(2 * side)
        places = torch.minimum(places, 2 * side - 1 - places)
    matrix = torch.zeros(side, side, dtype=torch.float64)
    return matrix.scatter_add_(1, places, (weights / weights.sum()).expand(places.shape)).float()


def centre_zoom(images: Tensor, factor: float) -> Tensor:
    """Centre of the images enlarged bilinearly with aligned corners; the output is as large as the input or larger."""
    height, width = (math.ceil(side / factor) for side in images.shape[-2:])
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    crop = images[..., top : top + height, left : left + width]
    return F.interpolate(
        crop, size=(round(height * factor), round(width * factor)), mode="bilinear", align_corners=True
    )


def motion(images: Tensor, radius: int, deviation: float, degrees: Tensor) -> Tensor:
    """One-sided motion blur along the angle of each image; edge pixels are repeated beyond the border.

    The kernel is half a Gaussian of 2·radius + 1 points on a line, each rounded to a whole pixel.
    """
    width = 2 * radius + 1
    steps = torch.arange(width, dtype=torch.float64)
    weights = torch.exp(-0.5 * (steps / deviation) ** 2)
    weights /= weights.sum()
    padded = F.pad(images, [width - 1] * 4, mode="replicate")
    height, breadth = images.shape[-2:]
    blurred = torch.zeros_like(images)
    for out, image, angle in zip(blurred, padded, degrees.double().deg2rad().tolist(), strict=True):
        down = torch.ceil(steps * math.sin(angle) - 0.5).int().tolist()
        right = torch.ceil(steps * math.cos(angle) - 0.5).int().tolist()
        for dy, dx, weight in zip(down, right, weights.tolist(), strict=True):
            top, left = width - 1 + dy, width - 1 + dx
            out.add_(image[..., top : top + height, left : left + breadth], alpha=weight)
    return blurred


def grey(images: Tensor) -> Tensor:
    """Luminance of the images, with one channel."""
    if images.shape[-3] == 1:
        return images
    return (images * images.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(-3, keepdim=True)


def whole_levels(images: Tensor) -> Tensor:
    """Images clipped to [0, 1] and rounded down to the 256 levels of 8 bits, as in the published data sets."""
    return images.clamp(0, 1).mul(255).add_(1e-4).floor_().div_(255)
