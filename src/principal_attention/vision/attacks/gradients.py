"""Gradient attacks of foolbox, and uniform noise as a baseline."""

import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attempt import Attempt

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # silences the warning about a missing git from foolbox's import
CONSTANTS = 4  # number of constants that Carlini and Wagner's attack tries
UNBOUNDED = 1e6  # replaces infinite bounds, since foolbox needs finite ones


def _run(attempt: Attempt, make: Callable[[Any], Any], eps: float | None) -> Any:
    """Result of foolbox's attack `make(foolbox.attacks)`: raw images, images clipped to the budget, success flags."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised by foolbox itself
        import foolbox

        finite = tuple(math.copysign(min(abs(bound), UNBOUNDED), bound) for bound in attempt.bounds)
        target = foolbox.PyTorchModel(attempt.model, bounds=finite, device=attempt.images.device)
    return make(foolbox.attacks)(target, attempt.images, attempt.labels, epsilons=eps)


def uniform_noise(attempt: Attempt) -> Tensor:
    """Images plus uniform noise in [−ε, ε]. foolbox divides the noise by its maximum instead of its largest magnitude,
    which exceeds the budget."""
    return attempt.images + attempt.eps * attempt.uniform()


def fgsm(attempt: Attempt) -> Tensor:
    return _run(attempt, lambda attacks: attacks.LinfFastGradientAttack(), attempt.eps)[1]


def pgd(attempt: Attempt, *, steps: int, step: float | None = None) -> Tensor:
    """PGD from a random start. `step`: step size divided by ε. Default: 2.5/steps (Madry et al., 2018), enough to cross
    the budget from any start."""
    start = attempt.images + attempt.eps * attempt.uniform()

    def make(attacks: Any) -> Any:
        class Started(attacks.LinfProjectedGradientDescentAttack):  # type: ignore[misc, name-defined]
            def get_random_start(self, x0: Any, epsilon: float) -> Any:
                return type(x0)(start)

        return Started(rel_stepsize=2.5 / steps if step is None else step, steps=steps)

    return _run(attempt, make, attempt.eps)[1]


def carlini_wagner(attempt: Attempt, *, steps: int) -> Tensor:
    """Nearest adversarial images that are found in `steps` steps, divided among four constants; ε is not used."""
    constants = min(CONSTANTS, steps)
    options = dict(binary_search_steps=constants, steps=steps // constants, initial_const=1.0, abort_early=False)
    found, _, success = _run(attempt, lambda attacks: attacks.L2CarliniWagnerAttack(**options), None)
    return torch.where(success.view(-1, 1, 1, 1), found, attempt.images)  # foolbox returns black images for failures


def sparse_l1(attempt: Attempt, *, steps: int) -> Tensor:
    """Sparse L1 descent (Tramèr and Boneh, 2019): each step changes the 1% of values with the largest gradients."""
    options = dict(quantile=0.99, rel_stepsize=2.0 / steps, steps=steps)
    return _run(attempt, lambda attacks: attacks.SparseL1DescentAttack(**options), attempt.eps)[1]
