"""Surrogate gradients of RPC-Attention, for attacks that know the defence.

Key entries that the pursuit clips at its threshold get no gradient, so an attack that follows gradients may
underestimate how vulnerable the model is. `surrogate_gradients` replaces the gradients:

    "straight"   the same outputs; the backward pass treats S in K − S as a constant
    "infinite"   outputs and gradients of the model with an infinite threshold, where S = 0

(A straight-through S = shrink(T), ∂S/∂T = 1, would make K − S constant, so that the keys got no gradient at all.)
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from ..errors import InputError

KINDS = ("straight", "infinite")
_active: list[str] = []


@contextmanager
def surrogate_gradients(kind: str) -> Iterator[None]:
    """Context manager: every RPC-Attention of this process uses the surrogate `kind`, "straight" or "infinite".

    `backward` may be called after the context has ended, except with activation checkpointing, which computes the
    outputs again.
    """
    if kind not in KINDS:
        raise InputError(f"kind of surrogate gradients is {kind!r}; expected one of {', '.join(KINDS)}")
    _active.append(kind)
    try:
        yield
    finally:
        _active.pop()


def active() -> str | None:
    """The innermost active kind of surrogate gradients; None outside `surrogate_gradients`."""
    return _active[-1] if _active else None


def straight_clip(x: Tensor, bound: Tensor) -> Tensor:
    """clip(x, bound) with the gradient of x."""
    return x + (x.clamp(max=bound).clamp_min(-bound) - x).detach()
