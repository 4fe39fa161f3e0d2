"""Attacks of AutoAttack (pyautoattack), one by one and as the standard suite. Images are in [0, 1]."""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from .attempt import Attempt

TARGETS = 9  # default number of target classes
LOG = logging.getLogger("auto-attack")  # logger of pyautoattack


class _Target(nn.Module):
    """Wrapper of the model for pyautoattack: returns a copy of the logits, which pyautoattack modifies in place, and
    computes gradients only if the images require them."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(images.requires_grad and torch.is_grad_enabled()):
            return self.model(images).clone()  # type: ignore[no-any-return]


def _targets(attempt: Attempt, wanted: int, least: int, name: str) -> int:
    """Number of target classes, at most the number of other classes."""
    with torch.no_grad():
        classes = attempt.model(attempt.images[:1]).shape[-1]
    if classes < least:
        raise InputError(f"{name} needs at least {least} classes; the model has {classes}")
    return min(wanted, classes - 1)


def _made(kind: Any, attempt: Attempt, **options: Any) -> Any:
    """Attack of pyautoattack, with a seed drawn from torch's global generator, which `attack` has seeded."""
    seed = int(torch.randint(2**31, ()))
    return kind(_Target(attempt.model), eps=attempt.eps, seed=seed, device=attempt.images.device, **options)


def apgd_ce(attempt: Attempt, *, steps: int) -> Tensor:
    from pyautoattack.autopgd_base import APGDAttack

    return _made(APGDAttack, attempt, n_iter=steps, loss="ce", logger=LOG).perturb(attempt.images, attempt.labels)


def apgd_t(attempt: Attempt, *, steps: int, targets: int = TARGETS) -> Tensor:
    from pyautoattack.autopgd_base import APGDAttack_targeted

    targets = _targets(attempt, targets, 4, "apgd-t")
    made = _made(APGDAttack_targeted, attempt, n_iter=steps, n_target_classes=targets, logger=LOG)
    return made.perturb(attempt.images, attempt.labels)


def fab_t(attempt: Attempt, *, steps: int, targets: int = TARGETS) -> Tensor:
    from pyautoattack.fab_pt import FABAttack_PT

    targets = _targets(attempt, targets, 2, "fab-t")
    made = _made(FABAttack_PT, attempt, n_iter=steps, targeted=True, n_target_classes=targets)
    return made.perturb(attempt.images, attempt.labels)


@torch.no_grad()
def square(attempt: Attempt, *, steps: int) -> Tensor:
    from pyautoattack.square import SquareAttack

    return _made(SquareAttack, attempt, n_queries=steps, resc_schedule=False).perturb(attempt.images, attempt.labels)


def standard(attempt: Attempt) -> Tensor:
    from pyautoattack import AutoAttack

    targets = _targets(attempt, TARGETS, 4, "autoattack")
    made = _made(AutoAttack, attempt)
    made.apgd_targeted.n_target_classes = made.fab.n_target_classes = targets
    return made.run_standard_evaluation(attempt.images, attempt.labels, batch_size=len(attempt.images))[0]
