"""Weather corruptions."""

import math

import torch
from torch import Tensor

from .draws import Draws
from .filters import centre_zoom, grey, motion
from .frost import Textures


def snow(images: Tensor, strength: tuple[float, ...], draws: Draws) -> Tensor:
    mean, deviation, zoom, threshold, radius, blur, kept = strength
    height, width = images.shape[-2:]
    flakes = centre_zoom(draws.normal(1, height, width) * deviation + mean, zoom)
    flakes = flakes.masked_fill(flakes < threshold, 0.0).clamp(0, 1)
    flakes = motion(flakes, int(radius), blur, draws.uniform(low=-135, high=-45))
    flakes = (flakes[..., :height, :width] * 255).round() / 255
    whitened = torch.maximum(images, grey(images) * 1.5 + 0.5)
    return kept * images + (1 - kept) * whitened + flakes + flakes.flip(-2, -1)


def frost(images: Tensor, strength: tuple[float, float, float | None], draws: Draws, textures: Textures) -> Tensor:
    clear, icy, scale = strength
    channels, height, width = images.shape[1:]
    pieces = []
    for which, down, right in draws.uniform(3).tolist():
        ice = textures.scaled(int(which * len(textures)), height, width, scale)
        top, left = int(down * (ice.shape[-2] - height)), int(right * (ice.shape[-1] - width))
        pieces.append(ice[:, top : top + height, left : left + width])
    ice = torch.stack(pieces).to(images)
    return clear * images + icy * (grey(ice) if channels == 1 else ice)


def fog(images: Tensor, strength: tuple[float, float], draws: Draws) -> Tensor:
    thickness, decay = strength
    height, width = images.shape[-2:]
    brightest = images.amax((1, 2, 3), keepdim=True)
    clouds = plasma(2 ** math.ceil(math.log2(max(height, width))), decay, draws)[:, None, :height, :width]
    return (images + thickness * clouds) * brightest / (brightest + thickness)


def plasma(side: int, decay: float, draws: Draws) -> Tensor:
    """Plasma fractals (batch, side, side) in [0, 1], by the diamond-square algorithm on a torus.

    The middle of four points is their mean plus a random number, whose range falls by a factor of `decay`² from scale
    to scale, since the published code multiplies by the range twice.
    """
    clouds = torch.zeros(len(draws.generators), side, side, dtype=torch.float64, device=draws.device)
    step, size = side, 100.0

    def filled(sums: Tensor) -> Tensor:
        return sums / 4 + size * draws.uniform(*sums.shape[1:], low=-size, high=size)

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        clouds[:, half::step, half::step] = filled(pairs + pairs.roll(-1, 2))
        centres = clouds[:, half::step, half::step]
        clouds[:, ::step, half::step] = filled(centres + centres.roll(1, 1) + corners + corners.roll(-1, 2))
        clouds[:, half::step, ::step] = filled(centres + centres.roll(1, 2) + corners + corners.roll(-1, 1))
        step, size = half, size / decay
    clouds -= clouds.amin((1, 2), keepdim=True)
    return (clouds / clouds.amax((1, 2), keepdim=True)).float()
