"""Attacks inside a budget of ε a pixel (foolbox): images in [0, 1], true labels, clipped to valid images."""

import os
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # foolbox asks for git, and needs it for nothing here

ATTACKS = ("fgsm", "pgd")


def attack(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, *, eps: float, steps: int = 20, seed: int = 0
) -> Tensor:
    """Adversarial images for a model that takes images in [0, 1].

    PGD starts at random and makes steps of 2.5·ε/steps (Madry et al., 2018): enough to cross the budget and come back.
    """
    if name not in ATTACKS:
        raise InputError(f"there is no attack {name!r}; expected one of {', '.join(ATTACKS)}")
    with warnings.catch_warnings(), torch.enable_grad(), torch.random.fork_rng():
        warnings.simplefilter("ignore", DeprecationWarning)  # foolbox's own, on import and after
        import foolbox

        attacks: dict[str, Any] = {
            "fgsm": foolbox.attacks.LinfFastGradientAttack,
            "pgd": lambda: foolbox.attacks.LinfProjectedGradientDescentAttack(rel_stepsize=2.5 / steps, steps=steps),
        }
        torch.manual_seed(seed)  # of the random start
        target = foolbox.PyTorchModel(model.eval(), bounds=(0, 1), device=images.device)
        _, clipped, _ = attacks[name]()(target, images, labels, epsilons=eps)
    return clipped.detach()  # type: ignore[no-any-return]
