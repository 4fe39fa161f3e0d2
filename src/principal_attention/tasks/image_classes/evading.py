"""Attack that evades the gates of token pursuit."""

import torch
from torch import Tensor

from ...adapt.condemned import watch_excess
from ...errors import InputError
from ...vision.attacks.patches import Objective, gap_of
from .subject import ImageSubject

REACH = 2.0  # gap beyond which only the excess counts


def evadable(subject: ImageSubject) -> bool:
    """Whether the model has gates of token pursuit."""
    try:
        with watch_excess(subject.network):
            return True
    except InputError:
        return False


def evade(subject: ImageSubject, weight: float = 1.0) -> Objective:
    """Ascend the gap of the model without its gates, up to `REACH`, minus `weight` times the gates' excess.

    The excess is Σ (r/θ − 1)₊ over all tokens and layers. Where it is 0, the gates change nothing; unlike the gated
    logits, it has a gradient where a gate has closed completely.
    """

    def objective(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with watch_excess(subject.network, gated=False) as collected:
            gap = gap_of(subject.on_pixels(images), labels)
        excess = torch.stack([each.float().clamp(min=0).flatten(1).sum(1) for each in collected]).sum(0)
        with torch.no_grad():
            logits = subject.on_pixels(images)
        return gap.clamp(max=REACH) - weight * excess, logits

    return objective
