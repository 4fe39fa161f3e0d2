"""Every attack by name. Images and budgets are in the model's units: pixels in [0, 1] unless `bounds` says other."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...plumbing.seeds import words
from . import auto, gradients
from .attempt import Attempt, Bounds, Norm, size_of
from .spsa import spsa


@dataclass(frozen=True)
class Attack:
    """What is fixed of an attack."""

    run: Callable[..., Tensor]
    help: str
    norm: Norm = "linf"  # of the budget
    eps: float = 1 / 255
    steps: int | None = None  # gradients or queries; None: the attack has none to choose
    gradients: bool = True  # a white box
    options: tuple[str, ...] = ()  # beside steps: what else it takes
    pixels: bool = False  # knows images in [0, 1] only


ATTACKS: dict[str, Attack] = {
    "fgsm": Attack(gradients.fgsm, "Fast gradient sign method: one step of ε."),
    "pgd": Attack(gradients.pgd, "Projected gradient descent from a random start.", steps=20, options=("step",)),
    "cw": Attack(gradients.carlini_wagner, "Carlini and Wagner's attack in the ℓ2 norm.", "l2", 0.5, steps=200),
    "sld": Attack(gradients.sparse_l1, "Sparse ℓ1 descent.", "l1", 10.0, steps=20),
    "noise": Attack(gradients.uniform_noise, "Uniform noise of size ε; no gradient.", gradients=False),
    "apgd-ce": Attack(auto.apgd_ce, "AutoAttack's APGD on the cross-entropy.", steps=100, pixels=True),
    "apgd-t": Attack(
        auto.apgd_t, "AutoAttack's APGD on the targeted DLR loss.", steps=100, options=("targets",), pixels=True
    ),
    "fab-t": Attack(
        auto.fab_t, "AutoAttack's targeted FAB: the nearest boundary.", steps=100, options=("targets",), pixels=True
    ),
    "square": Attack(
        auto.square, "Square attack: random search by queries; no gradient.", steps=5000, gradients=False, pixels=True
    ),
    "autoattack": Attack(auto.standard, "AutoAttack: apgd-ce, apgd-t, fab-t and square in turn.", pixels=True),
    "spsa": Attack(
        spsa,
        "Gradients estimated from queries; no gradient of the model.",
        steps=40,
        gradients=False,
        options=("samples",),
    ),
}


def attack(
    name: str,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float | None = None,
    steps: int | None = None,
    bounds: Bounds = (0.0, 1.0),
    indices: Sequence[int] | None = None,
    seed: int = 0,
    **options: Any,
) -> Tensor:
    """Images that a model should take for something else than their labels, within `eps` and `bounds`.

    `eps` is a distance in the attack's own norm. `bounds` may be infinite for attacks that do not need them. Random
    numbers depend on the seed and on `indices` (from 0 if not given). The model is attacked in evaluation mode, and its
    parameters get no gradient.
    """
    if name not in ATTACKS:
        raise InputError(f"there is no attack {name!r}; expected one of {', '.join(ATTACKS)}")
    kind = ATTACKS[name]
    eps = kind.eps if eps is None else eps
    _check(name, kind, images, labels, eps, steps, bounds, options)
    if kind.steps is not None:
        options["steps"] = kind.steps if steps is None else steps
    images = images.detach()
    if not len(images):
        return images.clone()
    indices = range(len(images)) if indices is None else indices
    training = [module for module in model.modules() if module.training]
    wanted = [p for p in model.parameters() if p.requires_grad]
    try:
        model.eval()
        for p in wanted:
            p.requires_grad_(False)
        with torch.enable_grad(), torch.random.fork_rng():
            torch.default_generator.manual_seed(words("attack", seed, indices[0])[0])
            found = kind.run(Attempt(model, images, labels, eps, bounds, seed, indices), **options)
    finally:
        for module in training:
            module.training = True
        for p in wanted:
            p.requires_grad_(True)
    return within(found.detach(), images, kind.norm, eps, bounds)


def within(found: Tensor, images: Tensor, norm: Norm, eps: float, bounds: Bounds) -> Tensor:
    """What an attack may have found. In ℓ∞ a change is cut to the budget; in the other norms one that is too large by
    more than rounding is none, and the image is given back."""
    change = (found.clamp(*bounds) - images).flatten(1)
    if norm == "linf":
        change = change.clamp(-eps, eps)
    else:
        size = size_of(change, norm)[:, None]
        shrunk = change * (eps / size.clamp(min=1e-30)).clamp(max=1)
        change = torch.where(size <= eps * 1.01, shrunk, 0.0)
    return (images + change.view_as(images)).clamp(*bounds)


def _check(
    name: str,
    kind: Attack,
    images: Tensor,
    labels: Tensor,
    eps: float,
    steps: int | None,
    bounds: Bounds,
    options: dict[str, Any],
) -> None:
    if not 0 < eps < math.inf:
        raise InputError(f"eps is {eps!r}; expected a positive number")
    if steps is not None and kind.steps is None:
        raise InputError(f"{name} takes no steps, but {steps} were given")
    if steps is not None and steps < 1:
        raise InputError(f"steps is {steps}; expected at least 1")
    if unknown := sorted(set(options) - set(kind.options)):
        raise InputError(f"{name} takes no option {unknown[0]!r}; it has {', '.join(kind.options) or 'none'}")
    if labels.shape != (len(images),):
        raise InputError(f"labels have shape {tuple(labels.shape)}; expected one a image, ({len(images)},)")
    if kind.pixels and bounds != (0.0, 1.0):
        raise InputError(f"{name} knows images in [0, 1] only; expected the protocol 'pixel'")
    low, high = bounds
    if len(images) and not (low <= images.min() and images.max() <= high):
        raise InputError(
            f"the images run from {images.min():.3g} to {images.max():.3g}; expected values in [{low:g}, {high:g}]: "
            "the normaliser belongs inside the model"
        )
