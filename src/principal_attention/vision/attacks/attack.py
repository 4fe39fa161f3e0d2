"""Attacks by name. Images and budgets are in the units of the model's input: [0, 1] unless `bounds` differs."""

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
from .frozen import frozen
from .spsa import spsa


@dataclass(frozen=True)
class Attack:
    """Attack and its defaults."""

    run: Callable[..., Tensor]
    help: str
    norm: Norm = "linf"  # norm of the budget
    eps: float = 1 / 255  # default budget
    steps: int | None = None  # default number of gradient steps or queries; None: the attack takes no `steps`
    gradients: bool = True  # whether the attack uses gradients of the model (white box)
    options: tuple[str, ...] = ()  # names of further options
    pixels: bool = False  # whether the attack takes images in [0, 1] only


ATTACKS: dict[str, Attack] = {
    "fgsm": Attack(gradients.fgsm, "Fast gradient sign method: one step of ε."),
    "pgd": Attack(gradients.pgd, "Projected gradient descent from a random start.", steps=20, options=("step",)),
    "cw": Attack(gradients.carlini_wagner, "Carlini and Wagner's attack in the ℓ2 norm.", "l2", 0.5, steps=200),
    "sld": Attack(gradients.sparse_l1, "Sparse ℓ1 descent.", "l1", 10.0, steps=20),
    "noise": Attack(gradients.uniform_noise, "Uniform noise in [−ε, ε]; no gradients.", gradients=False),
    "apgd-ce": Attack(auto.apgd_ce, "AutoAttack's APGD on the cross-entropy.", steps=100, pixels=True),
    "apgd-t": Attack(
        auto.apgd_t, "AutoAttack's APGD on the targeted DLR loss.", steps=100, options=("targets",), pixels=True
    ),
    "fab-t": Attack(
        auto.fab_t,
        "AutoAttack's targeted FAB, towards the nearest boundary.",
        steps=100,
        options=("targets",),
        pixels=True,
    ),
    "square": Attack(
        auto.square,
        "Square attack: random search with queries; no gradients.",
        steps=5000,
        gradients=False,
        pixels=True,
    ),
    "autoattack": Attack(auto.standard, "AutoAttack: apgd-ce, apgd-t, fab-t and square in turn.", pixels=True),
    "spsa": Attack(
        spsa,
        "SPSA: gradients estimated from queries; no gradients of the model.",
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
    """Perturbed images that the model should misclassify, within distance `eps` of `images` and within `bounds`.

    The model is attacked in evaluation mode, and its parameters get no gradients.

    Args:
        eps: budget in the norm of the attack. Default: `ATTACKS[name].eps`.
        steps: number of gradient steps or queries. Default: `ATTACKS[name].steps`.
        bounds: range of the images; may be infinite, except for attacks with `pixels`.
        indices: indices of the images, which with `seed` determine the random numbers. Default: 0, 1, ….
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
    with frozen(model), torch.enable_grad(), torch.random.fork_rng():
        torch.default_generator.manual_seed(words("attack", seed, indices[0])[0])
        found = kind.run(Attempt(model, images, labels, eps, bounds, seed, indices), **options)
    return within(found.detach(), images, kind.norm, eps, bounds)


def within(found: Tensor, images: Tensor, norm: Norm, eps: float, bounds: Bounds) -> Tensor:
    """Result of an attack with its budget enforced. In ℓ∞ perturbations are clipped to `eps`; in other norms one that
    exceeds `eps` by more than 1% (rounding) is discarded, and the original image is returned."""
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
        raise InputError(f"labels have shape {tuple(labels.shape)}; expected one per image, ({len(images)},)")
    if kind.pixels and bounds != (0.0, 1.0):
        raise InputError(f"{name} takes images in [0, 1] only; expected bounds (0, 1), as in the protocol 'pixel'")
    low, high = bounds
    if len(images) and not (low <= images.min() and images.max() <= high):
        raise InputError(
            f"the images run from {images.min():.3g} to {images.max():.3g}; expected values in [{low:g}, {high:g}]: "
            "normalise the images inside the model"
        )
