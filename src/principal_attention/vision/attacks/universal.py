"""One patch for all images, learnt on images that are not evaluated."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...plumbing.seeds import words
from .frozen import frozen
from .patches import MOMENTUM, STEP, gap_of
from .places import check_patch, paste

REACH = 2.0  # difference of logits beyond which a misclassified image counts no more
BATCH = 32

Places = Callable[[list[int], int], Tensor]  # positions of training images and number of the step to corners (B, 2)


def universal_patch(
    model: nn.Module, images: Tensor, labels: Tensor, *, places: Places, size: int, steps: int = 100,
    batch: int = BATCH, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Patch (C, size, size) in 256 levels that raises the mean gap on the training images, wherever it is put.

    Signed steps of the averaged gradient, as in `attack_patches`, each on the next `batch` images in random order.
    """
    check_patch(size, *images.shape[-2:])
    if steps < 1:
        raise InputError(f"steps is {steps}; expected at least 1")
    if not len(images):
        raise InputError("there are no images to learn a universal patch on")
    generator = torch.Generator().manual_seed(words("patch", seed)[0])
    patch = torch.rand(images.shape[1], size, size, generator=generator).to(images)
    average = torch.zeros_like(patch)
    order: list[int] = []
    with frozen(model), torch.enable_grad():
        for step in range(steps):
            if len(order) < min(batch, len(images)):
                order += torch.randperm(len(images), generator=generator).tolist()
            chosen, order = order[:batch], order[batch:]
            now = patch.clone().requires_grad_()
            changed = paste(images[chosen], now.expand(len(chosen), -1, -1, -1), places(chosen, step).to(images.device))
            (gradient,) = torch.autograd.grad(gap_of(model(changed), labels[chosen]).clamp(max=REACH).sum(), now)
            gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
            average = MOMENTUM * average + gradient / gradient.abs().mean().clamp(min=torch.finfo(gradient.dtype).tiny)
            length = STEP * (1 + math.cos(math.pi * step / steps)) / 2
            patch = (patch + length * average.sign()).clamp(0, 1)
    return patch.mul(255).round().div(255)
