"""Textures of ice for the frost corruption: pictures in a folder, or generated textures."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ...errors import InputError
from .filters import gaussian

# Parameters of each generated texture: mean and standard deviation of the luminance, tint in RGB, number of crystals,
# length of a crystal relative to its width. They are in the range of the published photographs.
MADE = (
    (0.52, 0.07, (0.60, 1.14, 1.26), 400, 4.0),
    (0.80, 0.09, (0.97, 0.99, 1.04), 600, 7.0),
    (0.72, 0.10, (0.96, 1.00, 1.04), 500, 5.0),
    (0.60, 0.11, (0.91, 1.01, 1.08), 700, 3.0),
    (0.48, 0.17, (0.91, 1.00, 1.09), 600, 6.0),
    (0.36, 0.16, (0.79, 1.06, 1.15), 300, 8.0),
)
SIZE = (400, 600)  # height and width in pixels
REACH = 80  # extent of a crystal from its centre, in pixels


class Textures:
    """Textures of ice, tensors (3, height, width) in [0, 1]."""

    def __init__(self, pictures: Sequence[Tensor]):
        self.pictures = list(pictures)
        self._scaled: dict[tuple[int, int, int, float | None], Tensor] = {}

    def __len__(self) -> int:
        return len(self.pictures)

    def fingerprint(self) -> str:
        """Hash of the textures; differs when they differ."""
        seen = hashlib.sha256()
        for picture in self.pictures:
            seen.update(picture.numpy().tobytes())
        return seen.hexdigest()[:8]

    def scaled(self, number: int, height: int, width: int, scale: float | None) -> Tensor:
        """Resized texture, at least 1.1 times as large as height×width.

        `scale`: scale factor of the texture, if that is large enough; None: 1.1, with bicubic interpolation.
        """
        key = number, height, width, scale
        if key not in self._scaled:
            picture = self.pictures[number][None]
            cover = max(height / picture.shape[-2], width / picture.shape[-1])
            mode = "bicubic" if scale is None else "bilinear"
            factor = 1.1 * max(1.0, cover) if scale is None else max(scale, 1.1 * cover)
            size = [int(np.ceil(side * factor)) for side in picture.shape[-2:]]
            scaled = F.interpolate(picture, size=size, mode=mode, align_corners=False)
            self._scaled[key] = ((scaled * 255).round() / 255).clamp(0, 1)[0]
        return self._scaled[key]


def read_textures(folder: Path) -> Textures:
    """Textures from the images in a folder, sorted by name; those of ImageNet-C are frost1.png … frost6.jpg."""
    # imported here, since ..data imports timm, which takes seconds
    from ..data.pictures import EXTENSIONS, open_picture, to_mode

    files = sorted(file for file in folder.glob("*") if file.suffix.lower() in EXTENSIONS) if folder.is_dir() else []
    if not files:
        raise InputError(f"{folder} holds no pictures of frost; expected frost1.png and so on, as in ImageNet-C")
    pictures = []
    for file in files:
        try:
            with open_picture({"path": str(file)}) as picture:
                pixels = np.asarray(to_mode(picture, "RGB"))
        except (InputError, OSError, Image.DecompressionBombError) as wrong:
            raise InputError(f"the frost texture {file} cannot be read: {wrong}") from wrong
        pictures.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255)
    return Textures(pictures)


@lru_cache(maxsize=1)
def made_textures() -> Textures:
    """Six generated textures of ice, always the same: bright needles in cells of random direction, under clouds."""
    return Textures([_crystals(number, *each) for number, each in enumerate(MADE)])


def _crystals(
    number: int, mean: float, deviation: float, tint: tuple[float, float, float], count: int, length: float
) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    height, width = SIZE
    down = torch.rand(count, generator=generator) * height
    across = torch.rand(count, generator=generator) * width
    angle = torch.rand(count, generator=generator) * np.pi
    light = torch.rand(count, generator=generator)
    nearest, ice = torch.full(SIZE, torch.inf), torch.zeros(SIZE)
    for y, x, turn, bright in torch.stack([down, across, angle, light], 1).tolist():
        near = tuple(slice(max(0, int(at) - REACH), int(at) + REACH) for at in (y, x))
        rows = torch.arange(height)[near[0], None] - y
        columns = torch.arange(width)[near[1]] - x
        along, beside = columns * np.cos(turn) + rows * np.sin(turn), rows * np.cos(turn) - columns * np.sin(turn)
        distance = (along / length) ** 2 + beside**2
        ribs = torch.cos(1.3 * (beside.abs() + 0.6 * along))  # fern pattern: ribs on both sides of a stem
        crystal = bright + 0.35 * ribs + 0.8 / (1 + beside**2)
        ice[near] = torch.where(distance < nearest[near], crystal, ice[near])
        nearest[near] = torch.minimum(nearest[near], distance)
    for scale in (2.0, 16.0, 64.0):
        cloud = gaussian(torch.randn(1, 1, *SIZE, generator=generator), scale, border="reflect", truncate=3.0)[0, 0]
        ice += 0.35 * cloud / cloud.std()
    ice = (ice - ice.mean()) / ice.std() * deviation + mean
    return (ice * torch.tensor(tint)[:, None, None]).clamp(0, 1)
