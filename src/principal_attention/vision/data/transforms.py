"""Transforms from a PIL image to a normalised tensor: timm's augmentations for training, resize and crop for
evaluation.
"""

from collections.abc import Sequence
from typing import Any

import timm.data
from PIL import Image, ImageOps
from timm.data.auto_augment import AugmentOp
from torchvision import transforms

from ...errors import InputError


def training_transform(
    size: int,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    crop: str = "none",
    scale: tuple[float, float] = (0.08, 1.0),
    padding: int = 4,
    flip: float = 0.0,
    rand_augment: str | None = None,
    color_jitter: float = 0.0,
    interpolation: str = "bicubic",
    erasing: float = 0.0,
) -> Any:
    """Training transform of DeiT: crop, flip, RandAugment, normalisation, erasing.

    Args:
        crop: "resized" (random resized crop), "pad" (random crop after padding by `padding` pixels) or "none".
        scale: range of the area of a resized crop; 1 is the whole image.
        flip: probability of a horizontal flip.
        rand_augment: RandAugment in timm's notation, such as "rand-m9-mstd0.5-inc1".
        erasing: probability of random erasing.
    """
    try:
        made = timm.data.create_transform(
            size, is_training=True, scale=scale, hflip=flip, color_jitter=color_jitter or None,
            auto_augment=rand_augment, interpolation=interpolation, re_prob=erasing, re_mode="pixel",
            mean=tuple(mean), std=tuple(std),
        )  # fmt: skip
    except (AssertionError, ValueError, KeyError) as wrong:
        raise InputError(
            f"augment.rand_augment is {rand_augment!r}; expected timm's notation, such as rand-m9-mstd0.5-inc1"
        ) from wrong
    for step in made.transforms:
        for op in getattr(step, "ops", ()):
            _allow_no_bits(op)
    fit = _Fit(size, 1.0, "bicubic" if interpolation == "random" else interpolation)
    if crop == "pad":
        made.transforms[0] = transforms.Compose([fit, transforms.RandomCrop(size, padding=padding)])
    elif crop == "none":
        made.transforms[0] = fit
    return made


def _allow_no_bits(op: AugmentOp) -> None:
    """Let posterizing keep 0 bits, a black image, as at its highest level; newer PIL raises an error for it."""
    if op.name.startswith("Posterize"):
        op.aug_fn = _posterize


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    if bits >= 8:
        return image
    return ImageOps.posterize(image, bits) if bits else Image.new(image.mode, image.size)


def evaluation_transform(
    size: int, *, mean: Sequence[float], std: Sequence[float], crop_pct: float = 0.875, interpolation: str = "bicubic"
) -> Any:
    """Evaluation transform: resize, centre crop, normalise. An image of the right size is not resized or cropped."""
    steps = [_Fit(size, crop_pct, interpolation), transforms.ToTensor(), transforms.Normalize(list(mean), list(std))]
    return transforms.Compose(steps)


class _Fit:
    """Resize and centre crop to size×size; returns an image of that size unchanged."""

    def __init__(self, size: int, crop_pct: float, interpolation: str):
        resize = transforms.Resize(round(size / crop_pct), interpolation=transforms.InterpolationMode(interpolation))
        self.size, self.fit = size, transforms.Compose([resize, transforms.CenterCrop(size)])

    def __call__(self, image: Image.Image) -> Image.Image:
        return image if image.size == (self.size, self.size) else self.fit(image)  # type: ignore[no-any-return]
