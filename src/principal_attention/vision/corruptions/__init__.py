"""The fifteen corruptions of ImageNet-C in torch, for batches on any device; results do not depend on the batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError
from . import blur, digital, jpeg, noise, weather
from .draws import Draws
from .filters import whole_levels
from .frost import Textures, made_textures, read_textures
from .parameters import CORRUPTIONS, strength_of

SEVERITIES = (1, 2, 3, 4, 5)
SMALLEST = 32  # smallest height and width in pixels
TOGETHER = 8  # images processed at a time; more do not fit into the CPU's cache and take twice as long

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(room, name) for room in (noise, blur, weather, digital, jpeg) for name in CORRUPTIONS
    if hasattr(room, name)
}  # fmt: skip


@torch.no_grad()
def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    indices: Sequence[int] | None = None,
    seed: int = 0,
    frost: Textures | Path | str | None = None,
) -> Tensor:
    """Corrupted images, rounded down to 8-bit levels, from images (batch, channels, height, width) in [0, 1].

    Args:
        severity: 1 to 5.
        indices: indices of the images, which with `seed`, `name` and `severity` determine the random numbers.
            Default: 0, 1, ….
        frost: textures of ice or a folder of them, such as those of ImageNet-C. Default: generated textures.
    """
    if name not in CORRUPTIONS:
        raise InputError(f"there is no corruption {name!r}; expected one of {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES or not isinstance(severity, int):
        raise InputError(f"the severity is {severity!r}; expected 1, 2, 3, 4 or 5")
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[-2:]) < SMALLEST:
        raise InputError(
            f"the images have shape {tuple(images.shape)}; expected (batch, 1 or 3, height, width) with at "
            f"least {SMALLEST}×{SMALLEST} pixels"
        )
    if not images.is_floating_point() or (len(images) and not 0 <= images.min() <= images.max() <= 1):
        raise InputError(
            f"the images are {images.dtype}, not all in [0, 1]; expected floating-point values from 0 to 1"
        )
    indices = range(len(images)) if indices is None else [int(index) for index in indices]
    if len(indices) != len(images):
        raise InputError(f"there are {len(images)} images and {len(indices)} indices; expected one index per image")
    options: dict[str, Any] = {}
    if name == "frost":
        given = read_textures(Path(frost)) if isinstance(frost, Path | str) else frost
        options["textures"] = given or made_textures()
    strength = strength_of(name, severity, min(images.shape[-2:]))
    done = torch.empty_like(images, dtype=torch.float32)
    for first in range(0, len(images), TOGETHER):
        part = slice(first, first + TOGETHER)
        draws = Draws(seed, indices[part], name, severity, images.device)
        done[part] = whole_levels(_FUNCTIONS[name](images[part].float(), strength, draws, **options))
    return done


__all__ = ["CORRUPTIONS", "SEVERITIES", "Textures", "corrupt", "made_textures", "read_textures"]
