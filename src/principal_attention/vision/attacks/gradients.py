"""Attacks that follow gradients (foolbox), and plain noise to compare them with."""

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..._random import words

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # foolbox asks for git, and needs it for nothing here
CONSTANTS = 4  # of Carlini and Wagner's attack
UNBOUNDED = 1e6  # foolbox wants numbers


def _foolbox(model: nn.Module, bounds: tuple[float, float], device: torch.device) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # foolbox's own, on import and after
        import foolbox

        finite = tuple(math.copysign(min(abs(bound), UNBOUNDED), bound) for bound in bounds)
        return foolbox, foolbox.PyTorchModel(model, bounds=finite, device=device)


def uniform(shape: Sequence[int], seed: int, indices: Sequence[int]) -> Tensor:
    """Numbers from −1 to 1, each image's its own."""
    drawn = torch.empty(len(indices), *shape)
    for each, index in zip(drawn, indices, strict=True):
        each.uniform_(-1, 1, generator=torch.Generator().manual_seed(words("attack", seed, index)[0]))
    return drawn


def uniform_noise(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, seed: int, indices: Sequence[int], **_: Any
) -> Tensor:
    """foolbox's divides by the largest noise of an image whatever its sign, which leaves the budget."""
    return images + eps * uniform(images.shape[1:], seed, indices).to(images)


def fgsm(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, bounds: tuple[float, float], **_: Any
) -> Tensor:
    foolbox, target = _foolbox(model, bounds, images.device)
    return foolbox.attacks.LinfFastGradientAttack()(target, images, labels, epsilons=eps)[1]  # type: ignore[no-any-return]


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    bounds: tuple[float, float],
    seed: int,
    indices: Sequence[int],
    steps: int,
    step: float | None = None,
) -> Tensor:
    """From a random start; `step` is a share of ε, 2.5/steps if not given (Madry et al., 2018): enough to cross the
    budget and come back."""
    foolbox, target = _foolbox(model, bounds, images.device)
    start = images + eps * uniform(images.shape[1:], seed, indices).to(images)

    class Started(foolbox.attacks.LinfProjectedGradientDescentAttack):  # type: ignore[misc, name-defined]
        def get_random_start(self, x0: Any, epsilon: float) -> Any:
            return type(x0)(start)

    made = Started(rel_stepsize=2.5 / steps if step is None else step, steps=steps)
    return made(target, images, labels, epsilons=eps)[1]  # type: ignore[no-any-return]


def carlini_wagner(
    model: nn.Module, images: Tensor, labels: Tensor, *, bounds: tuple[float, float], steps: int, **_: Any
) -> Tensor:
    """The nearest adversarial image that `steps` steps find, shared by four constants; the budget only judges it."""
    foolbox, target = _foolbox(model, bounds, images.device)
    constants = min(CONSTANTS, steps)
    made = foolbox.attacks.L2CarliniWagnerAttack(
        binary_search_steps=constants, steps=steps // constants, initial_const=1.0, abort_early=False
    )
    found, _, success = made(target, images, labels, epsilons=None)
    return torch.where(success.view(-1, 1, 1, 1), found, images)  # where it fails it returns black images


def sparse_l1(
    model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, bounds: tuple[float, float], steps: int, **_: Any
) -> Tensor:
    """Sparse L1 descent (Tramèr and Boneh, 2019): each step changes the 1% of the values with the steepest slope."""
    foolbox, target = _foolbox(model, bounds, images.device)
    made = foolbox.attacks.SparseL1DescentAttack(quantile=0.99, rel_stepsize=2.0 / steps, steps=steps)
    return made(target, images, labels, epsilons=eps)[1]  # type: ignore[no-any-return]
