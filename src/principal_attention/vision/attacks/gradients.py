"""Attacks that follow gradients (foolbox), and plain noise to compare them with."""

import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attempt import Attempt

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # foolbox asks for git, and needs it for nothing here
CONSTANTS = 4  # of Carlini and Wagner's attack
UNBOUNDED = 1e6  # foolbox wants numbers


def _run(attempt: Attempt, make: Callable[[Any], Any], eps: float | None) -> Any:
    """What foolbox's attack `make(foolbox.attacks)` finds: images, those within the budget, and which have fallen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # foolbox's own, on import and after
        import foolbox

        finite = tuple(math.copysign(min(abs(bound), UNBOUNDED), bound) for bound in attempt.bounds)
        target = foolbox.PyTorchModel(attempt.model, bounds=finite, device=attempt.images.device)
    return make(foolbox.attacks)(target, attempt.images, attempt.labels, epsilons=eps)


def uniform_noise(attempt: Attempt) -> Tensor:
    """foolbox's divides by the largest noise of an image whatever its sign, which leaves the budget."""
    return attempt.images + attempt.eps * attempt.uniform()


def fgsm(attempt: Attempt) -> Tensor:
    return _run(attempt, lambda attacks: attacks.LinfFastGradientAttack(), attempt.eps)[1]


def pgd(attempt: Attempt, *, steps: int, step: float | None = None) -> Tensor:
    """From a random start; `step` is a share of ε, 2.5/steps if not given (Madry et al., 2018): enough to cross the
    budget and come back."""
    start = attempt.images + attempt.eps * attempt.uniform()

    def make(attacks: Any) -> Any:
        class Started(attacks.LinfProjectedGradientDescentAttack):  # type: ignore[misc, name-defined]
            def get_random_start(self, x0: Any, epsilon: float) -> Any:
                return type(x0)(start)

        return Started(rel_stepsize=2.5 / steps if step is None else step, steps=steps)

    return _run(attempt, make, attempt.eps)[1]


def carlini_wagner(attempt: Attempt, *, steps: int) -> Tensor:
    """The nearest adversarial image that `steps` steps find, shared by four constants; the budget only judges it."""
    constants = min(CONSTANTS, steps)
    options = dict(binary_search_steps=constants, steps=steps // constants, initial_const=1.0, abort_early=False)
    found, _, success = _run(attempt, lambda attacks: attacks.L2CarliniWagnerAttack(**options), None)
    return torch.where(success.view(-1, 1, 1, 1), found, attempt.images)  # where it fails it returns black images


def sparse_l1(attempt: Attempt, *, steps: int) -> Tensor:
    """Sparse L1 descent (Tramèr and Boneh, 2019): each step changes the 1% of the values with the steepest slope."""
    options = dict(quantile=0.99, rel_stepsize=2.0 / steps, steps=steps)
    return _run(attempt, lambda attacks: attacks.SparseL1DescentAttack(**options), attempt.eps)[1]
