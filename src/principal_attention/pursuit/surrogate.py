"""Other gradients for the same model, for those who attack it.

Keys that a pursuit has cut at its threshold get no gradient, so an attack that follows gradients may stop at a wall
that is not there. Inside `surrogate_gradients` every RPC-Attention of this process answers otherwise:

    "straight"   the same outputs; the backward passes through K − S as if S did not depend on K
    "infinite"   outputs and gradients of the model at an infinite threshold, where nothing is cut

What is computed inside may be differentiated outside, but for activation checkpointing, which computes again. (Passing
straight through S = shrink(T) itself, ∂S/∂T = 1, would make K − S constant and hide the keys altogether.)
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from ..errors import InputError

KINDS = ("straight", "infinite")
_active: list[str] = []


@contextmanager
def surrogate_gradients(kind: str) -> Iterator[None]:
    if kind not in KINDS:
        raise InputError(f"the surrogate is {kind!r}; expected one of {', '.join(KINDS)}")
    _active.append(kind)
    try:
        yield
    finally:
        _active.pop()


def active() -> str | None:
    return _active[-1] if _active else None


def straight_clip(x: Tensor, bound: Tensor) -> Tensor:
    """clip(x, bound) whose gradient is that of x."""
    return x + (x.clamp(max=bound).clamp_min(-bound) - x).detach()
