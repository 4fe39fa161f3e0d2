"""JPEG compression without files: chroma at half resolution, and quantised cosine coefficients."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .draws import Draws

# quantisation tables of the standard (ITU T.81, annex K), for luminance and chroma
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
COLOUR = (
    (17, 18, 24, 47, 99, 99, 99, 99), (18, 21, 26, 66, 99, 99, 99, 99), (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99), *[(99,) * 8] * 4,
)  # fmt: skip
TO_YCC = torch.tensor([
    [0.299, 0.587, 0.114], [-0.168735892, -0.331264108, 0.5], [0.5, -0.418687589, -0.081312411]
], dtype=torch.float64)  # fmt: skip
_at = torch.arange(8, dtype=torch.float64)
COSINES = torch.cos(math.pi / 8 * (_at + 0.5) * _at[:, None]) * torch.where(_at == 0, 8**-0.5, 0.5)[:, None]


def jpeg_compression(images: Tensor, quality: int, draws: Draws) -> Tensor:
    """Images after JPEG compression of this quality, 1 to 100, by the steps of libjpeg: 8-bit YCbCr, chroma averaged
    over 2×2 pixels and interpolated when decoded."""
    height, width = images.shape[-2:]
    levels = (images * 255).round()
    padded = F.pad(levels, [0, -width % 16, 0, -height % 16], mode="replicate")
    if images.shape[1] == 1:
        return _coded(padded, LUMINANCE, quality)[..., :height, :width] / 255
    to_ycc = TO_YCC.to(images)
    centre = images.new_tensor([0, 128, 128])[:, None, None]
    ycc = (torch.einsum("oc,bchw->bohw", to_ycc, padded) + centre).round()
    luminance = _coded(ycc[:, :1], LUMINANCE, quality)
    colour = _coded(F.avg_pool2d(ycc[:, 1:], 2).round(), COLOUR, quality)
    colour = F.interpolate(colour, scale_factor=2, mode="bilinear", align_corners=False).round()
    read = torch.cat([luminance, colour], 1) - centre
    rgb = torch.einsum("oc,bchw->bohw", TO_YCC.inverse().to(images), read)
    return rgb[..., :height, :width].round().clamp(0, 255) / 255


def _coded(planes: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """Planes of 8-bit levels after quantisation of the cosine coefficients of their 8×8 blocks."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = ((torch.tensor(table) * scale + 50) // 100).clamp(1, 255).to(planes)
    cosines = COSINES.to(planes)
    *leading, height, width = planes.shape
    blocks = (planes - 128).view(*leading, height // 8, 8, width // 8, 8).transpose(-3, -2)
    coefficients = cosines @ blocks @ cosines.mT
    rounded = (coefficients / steps).round_().mul_(steps)
    blocks = cosines.mT @ rounded @ cosines
    return blocks.transpose(-3, -2).reshape(planes.shape).add_(128).round_().clamp_(0, 255)
