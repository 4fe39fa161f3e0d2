"""The attacks of AutoAttack (pyautoattack), one by one and as the standard suite. Images are in [0, 1]."""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError

TARGETS = 9
LOG = logging.getLogger("auto-attack")  # where it writes its warnings


class _Target(nn.Module):
    """The model as these attacks take it: they write into its answers, and ask with gradients when they need none."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(images.requires_grad and torch.is_grad_enabled()):
            return self.model(images).clone()  # type: ignore[no-any-return]


def _classes(model: nn.Module, images: Tensor, targets: int, least: int, name: str) -> int:
    with torch.no_grad():
        classes = model(images[:1]).shape[-1]
    if classes < least:
        raise InputError(f"{name} needs at least {least} classes; the model has {classes}")
    return min(targets, classes - 1)


def apgd_ce(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, seed: int, steps: int, **_: Any) -> Tensor:
    from pyautoattack.autopgd_base import APGDAttack

    made = APGDAttack(_Target(model), n_iter=steps, eps=eps, seed=_seed(), loss="ce", device=images.device, logger=LOG)
    return made.perturb(images, labels)  # type: ignore[no-any-return]


def apgd_t(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    seed: int,
    steps: int,
    targets: int = TARGETS,
    **_: Any,
) -> Tensor:
    from pyautoattack.autopgd_base import APGDAttack_targeted

    targets = _classes(model, images, targets, 4, "apgd-t")
    made = APGDAttack_targeted(
        _Target(model), n_iter=steps, eps=eps, seed=_seed(), n_target_classes=targets, device=images.device, logger=LOG
    )
    return made.perturb(images, labels)  # type: ignore[no-any-return]


def fab_t(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    seed: int,
    steps: int,
    targets: int = TARGETS,
    **_: Any,
) -> Tensor:
    from pyautoattack.fab_pt import FABAttack_PT

    targets = _classes(model, images, targets, 2, "fab-t")
    made = FABAttack_PT(
        _Target(model), n_iter=steps, eps=eps, seed=_seed(), targeted=True, n_target_classes=targets,
        device=images.device,
    )  # fmt: skip
    return made.perturb(images, labels)  # type: ignore[no-any-return]


def square(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, seed: int, steps: int, **_: Any) -> Tensor:
    from pyautoattack.square import SquareAttack

    with torch.no_grad():
        made = SquareAttack(
            _Target(model), n_queries=steps, eps=eps, seed=_seed(), resc_schedule=False, device=images.device
        )
        return made.perturb(images, labels)  # type: ignore[no-any-return]


def standard(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, seed: int, **_: Any) -> Tensor:
    from pyautoattack import AutoAttack

    targets = _classes(model, images, TARGETS, 4, "autoattack")
    made = AutoAttack(_Target(model), eps=eps, seed=_seed(), device=images.device)
    made.apgd_targeted.n_target_classes = made.fab.n_target_classes = targets
    return made.run_standard_evaluation(images, labels, batch_size=len(images))[0]  # type: ignore[no-any-return]


def _seed() -> int:
    """From the generator that `attack` has set."""
    return int(torch.randint(2**31, ()))
