"""Patch attacks: the pixels of one square per image take any values in [0, 1], so that the model is wrong."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...plumbing.seeds import words
from .frozen import frozen
from .places import check_patch, cut, paste
from .spsa import margin

Start = Literal["both", "image", "noise"]
STARTS: dict[str, tuple[str, ...]] = {"both": ("image", "noise"), "image": ("image",), "noise": ("noise",)}
# From images (B, C, H, W) and labels to the quantity to ascend (B,), and the logits that decide about success.
Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Largest step in pixel values, and share of the average that a new gradient leaves. Measured on DeiT-tiny, starting
# from the image: 40 steps on 16×16 pixels left 12 of 42 correct answers with steps of 0.2, 7 with 0.3 and 7 with 0.5;
# 20 steps on 32×32 pixels left 6 of 28 with steps of 0.1 without averaging, 5 with it, 1 with 0.2 and 0 with 0.3.
STEP, MOMENTUM = 0.3, 0.9
CLEAR = 1e-3  # difference of logits from which an image counts as misclassified, whatever the rounding of a batch
MIXED = 0.25  # share of noise in the pixels from which the second and later restarts of `image` begin
PROBE = 5  # steps of the search for the worst place


@dataclass(frozen=True)
class Patched:
    """Result of a patch attack, for each image."""

    images: Tensor  # (B, C, H, W)
    patches: Tensor  # (B, C, size, size)
    corners: Tensor  # (B, 2)
    gap: Tensor  # (B,) largest wrong logit minus the true one; positive if the model is wrong
    start: list[str]  # start of the returned patch: image, noise, or probe (found while searching for the worst place)
    gradient: Tensor  # (B,) norm of the first gradient in the patch, from the image itself


def gap_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Largest logit of a wrong class minus that of the true class; infinite where logits are not finite."""
    return (-margin(logits.float(), labels)).nan_to_num(nan=math.inf)


def untargeted(model: nn.Module) -> Objective:
    """Objective of a white-box attack: the gap, whose gradient does not vanish where the model is certain. Of the 42
    answers above it left 7, and 7 from noise; the cross-entropy left 8 and 11."""

    def objective(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(images).float()
        return gap_of(logits, labels), logits

    return objective


def attack_patches(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    corners: Tensor,
    *,
    size: int,
    steps: int = 100,
    restarts: int = 1,
    start: Start = "both",
    indices: Sequence[int] | None = None,
    seed: int = 0,
    objective: Objective | None = None,
    leave: bool = True,
) -> Patched:
    """PGD on a square patch of each image. An image leaves as soon as it is misclassified.

    Each start takes `steps` signed steps of the averaged gradient, whose size falls from `STEP` to 0. If corners hold
    several places per image, a short search first chooses the place with the largest gap.

    Args:
        images: images in [0, 1], (B, C, H, W), which the model should classify correctly without a patch.
        corners: candidate places of the patch, (B, K, 2).
        size: side of the patch in pixels.
        restarts: number of times that each start is tried. The starts of n restarts are among those of n + 1.
        start: "image" (the pixels that are there), "noise", or "both": an image survives if it survives both.
        indices: indices of the images, which with `seed` determine the random numbers. Default: 0, 1, ….
        objective: what to ascend. Default: `untargeted(model)`.
        leave: whether misclassified images leave; False for patches that are to mislead another model.
    """
    _check(images, labels, corners, size, steps, restarts, start)
    images, count = images.detach(), len(images)
    indices = range(count) if indices is None else indices
    first, least = corners[:, 0].clone(), images.new_full((count,), -math.inf, dtype=torch.float32)
    best = Patched(images, cut(images, first, size), first, least, [""] * count, images.new_zeros(count))
    if not count:
        return best
    ascent = _Ascent(objective or untargeted(model), steps, leave)
    with frozen(model), torch.enable_grad():
        if corners.shape[1] > 1:
            ascent_probe = replace(ascent, steps=min(PROBE, steps))
            for place in corners.unbind(1):
                _improve(best, ascent_probe, labels, place, "probe", cut(images, place, size))
        for restart in range(restarts):
            for name in STARTS[start]:
                patches = cut(images, best.corners, size)
                share = 1.0 if name == "noise" else MIXED * (restart > 0)
                if share:
                    noise = torch.stack([_noise(patches, seed, index, restart) for index in indices])
                    patches = share * noise + (1 - share) * patches
                _improve(best, ascent, labels, best.corners.clone(), name, patches)
    return replace(best, images=paste(images, best.patches, best.corners))


@dataclass(frozen=True)
class _Ascent:
    objective: Objective
    steps: int
    leave: bool

    def __call__(self, images: Tensor, labels: Tensor, corners: Tensor, patches: Tensor) -> tuple[Tensor, ...]:
        """Largest gap on the way of each image, its patch, and the norm of the first gradient."""
        patches, best = patches.clone(), patches.clone()
        gap, first = images.new_full((len(images),), -math.inf, dtype=torch.float32), images.new_zeros(len(images))
        average = torch.zeros_like(patches)
        active = torch.arange(len(images), device=images.device)
        for step in range(self.steps + 1):
            now = patches[active].requires_grad_()
            value, logits = self.objective(paste(images[active], now, corners[active]), labels[active])
            found = gap_of(logits.detach(), labels[active])
            better = found > gap[active]
            best[active[better]], gap[active[better]] = now.detach()[better], found[better]
            if step == self.steps:
                break
            (gradient,) = torch.autograd.grad(value.sum(), now)
            if step == 0:
                first = gradient.flatten(1).norm(dim=1)
            gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
            size = gradient.abs().mean((1, 2, 3), keepdim=True)
            average[active] = MOMENTUM * average[active] + gradient / size.clamp(min=torch.finfo(size.dtype).tiny)
            length = STEP * (1 + math.cos(math.pi * step / self.steps)) / 2
            patches[active] = (now.detach() + length * average[active].sign()).clamp(0, 1)
            if self.leave:
                active = active[gap[active] <= CLEAR]
            if not len(active):
                break
        return gap, best, first


def _improve(best: Patched, ascent: _Ascent, labels: Tensor, corners: Tensor, name: str, patches: Tensor) -> None:
    """Ascend from these patches for the images that are still right, and keep what is better."""
    wanted = best.gap <= CLEAR if ascent.leave else torch.ones_like(best.gap, dtype=torch.bool)
    chosen = wanted.nonzero().flatten()
    if not len(chosen):
        return
    gap, found, first = ascent(best.images[chosen], labels[chosen], corners[chosen], patches[chosen])
    unseen = torch.tensor([best.start[i] == "" for i in chosen.tolist()], device=labels.device)
    best.gradient[chosen[unseen]] = first[unseen]
    better = gap > best.gap[chosen]
    at = chosen[better]
    best.gap[at], best.patches[at], best.corners[at] = gap[better], found[better], corners[at]
    for place in at.tolist():
        best.start[place] = name


def _noise(like: Tensor, seed: int, *position: int) -> Tensor:
    """Uniform noise in [0, 1] in the shape of one patch."""
    generator = torch.Generator().manual_seed(words("patch", seed, *position)[0])
    return torch.rand(like.shape[1:], generator=generator).to(like)


def _check(images: Tensor, labels: Tensor, corners: Tensor, size: int, steps: int, restarts: int, start: str) -> None:
    for name, value in (("steps", steps), ("restarts", restarts)):
        if value < 1:
            raise InputError(f"{name} is {value}; expected at least 1")
    if start not in STARTS:
        raise InputError(f"start is {start!r}; expected one of {', '.join(STARTS)}")
    check_patch(size, *images.shape[-2:])
    if labels.shape != (len(images),):
        raise InputError(f"labels have shape {tuple(labels.shape)}; expected one per image, ({len(images)},)")
    if corners.ndim != 3 or corners.shape[::2] != (len(images), 2) or not corners.shape[1]:
        raise InputError(f"corners have shape {tuple(corners.shape)}; expected (images, places, 2)")
    if len(images) and not (images.min() >= 0 and images.max() <= 1):
        raise InputError(
            f"the images run from {images.min():.3g} to {images.max():.3g}; expected values in [0, 1]: normalise the "
            "images inside the model"
        )
