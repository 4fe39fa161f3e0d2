"""From a PIL image to a normalised tensor: timm's augmentations, and an evaluation that leaves ready images alone."""

from collections.abc import Callable, Sequence
from typing import Any

import timm.data
from PIL import Image
from torch import Tensor
from torchvision import transforms

Transform = Callable[[Image.Image], Tensor]


def training_transform(
    size: int,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    crop: str = "none",
    padding: int = 4,
    flip: float = 0.0,
    rand_augment: str | None = None,
    color_jitter: float = 0.0,
    interpolation: str = "bicubic",
    erasing: float = 0.0,
) -> Any:
    """DeiT's: crop, flip, RandAugment, normalisation, erasing. `crop` is "resized", "pad" (and crop back) or "none"."""
    made = timm.data.create_transform(
        size, is_training=True, hflip=flip, color_jitter=color_jitter or None, auto_augment=rand_augment,
        interpolation=interpolation, re_prob=erasing, re_mode="pixel", mean=tuple(mean), std=tuple(std),
    )  # fmt: skip
    if crop == "pad":
        made.transforms[0] = transforms.RandomCrop(size, padding=padding)
    elif crop == "none":
        made.transforms[0] = _Fit(size, 1.0, "bicubic" if interpolation == "random" else interpolation)
    return made


def evaluation_transform(
    size: int, *, mean: Sequence[float], std: Sequence[float], crop_pct: float = 0.875, interpolation: str = "bicubic"
) -> Any:
    """Resize, centre crop, normalise; an image that already has the size is not touched."""
    steps = [_Fit(size, crop_pct, interpolation), transforms.ToTensor(), transforms.Normalize(list(mean), list(std))]
    return transforms.Compose(steps)


class _Fit:
    def __init__(self, size: int, crop_pct: float, interpolation: str):
        resize = transforms.Resize(round(size / crop_pct), interpolation=transforms.InterpolationMode(interpolation))
        self.size, self.fit = size, transforms.Compose([resize, transforms.CenterCrop(size)])

    def __call__(self, image: Image.Image) -> Image.Image:
        return image if image.size == (self.size, self.size) else self.fit(image)  # type: ignore[no-any-return]
