"""The pointwise half of the pursuit, between two attention passes.

Written out, an iteration makes S and re-reads K, L, S and U five times. Substituting S = T − clip(T)
gives the same numbers from fewer reads. With c = 1 − sigma (0 or 2) and L, K' of the last pass:

    U' = K' − L + c·U          T = K − L + U'
    next keys = L + clip(T, tau) − c·U'                          (low_rank)
              = K − (T − clip(T, tau))                           (cleaned_keys, after the last update of S)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor | None]
Inner = Callable[..., Tensor]
Clip = Callable[[Tensor, Tensor], Tensor]


class Iteration(NamedTuple):
    steps: int  # n − 1
    carry: int  # c = 1 − sigma
    cleaned: bool  # the last step returns K − S
    inner: Inner

    def cleans(self, i: int) -> bool:
        return self.cleaned and i == self.steps - 1


def plain_clip(x: Tensor, bound: Tensor) -> Tensor:
    return torch.clamp(x, -bound, bound)


def plain_step(
    k: Tensor,
    keys: Tensor,
    low_rank: Tensor,
    dual: Tensor | None,
    bound: Tensor | None,
    carry: int,
    cleaned: bool,
    clip: Clip = plain_clip,
) -> Pair:
    """The step as the head of this file writes it, for compilers, torch.func and to test against.

    The dual goes in and comes out multiplied by c, which saves the backward a tensor.
    """
    new_dual = keys - low_rank if dual is None else keys - low_rank + dual
    residual = k - low_rank + new_dual
    clipped = residual if bound is None else clip(residual, bound)
    if cleaned:
        return k - (residual - clipped), None
    if not carry:
        return low_rank + clipped, None
    return low_rank + clipped - carry * new_dual, carry * new_dual


def _clip_(x: Tensor, bound: Tensor) -> Tensor:
    # Two one-sided clamps: with a broadcast bound each is vectorised, the two-sided one is not.
    return x.clamp_max_(bound).clamp_min_(-bound)


def update_dual(
    k: Tensor, keys: Tensor, low_rank: Tensor, dual: Tensor | None, carry: int, out: tuple[Any, Any] = (None, None)
) -> tuple[Tensor, Tensor]:
    """U' and T; `out` may name the two buffers they go to, `keys` and `dual` among them."""
    new_dual = torch.sub(keys, low_rank, out=out[0])
    if dual is not None:
        new_dual.add_(dual, alpha=carry)
    return new_dual, torch.sub(new_dual, low_rank, out=out[1]).add_(k)


def update_keys(
    k: Tensor,
    low_rank: Tensor,
    dual: Tensor,
    residual: Tensor,
    bound: Tensor | None,
    carry: int,
    cleaned: bool,
    spare: Tensor | None = None,
) -> Tensor:
    """Uses up `residual`, and `spare` where one is given."""
    if cleaned:
        assert bound is not None  # an infinite one never gets here
        clipped = _clip_(residual.clone() if spare is None else spare.copy_(residual), bound)
        return torch.sub(k, residual.sub_(clipped), out=spare)
    if bound is not None:
        residual = _clip_(residual, bound)
    residual = residual.add_(low_rank)
    return residual.sub_(dual, alpha=carry) if carry else residual


def workspace(k: Tensor) -> Tensor:
    """Two buffers like k that serve all steps. Fresh memory would cost more than the arithmetic, and one block
    of it costs less than two, since allocators give large freed blocks back to the system."""
    strides = k.stride() if k.is_contiguous() else torch.empty_like(k, device="meta").stride()
    return torch.empty_strided((2, *k.shape), (k.numel(), *strides), dtype=k.dtype, device=k.device)


def in_place(
    k: Tensor,
    bound: Tensor | None,
    others: tuple[Tensor | None, ...],
    iteration: Iteration,
    steps: int,
    work: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Without gradients, the first `steps` of the iteration: the keys after them, and the dual."""
    if not steps:
        return k if bound is None else k.clamp(max=bound).clamp_min_(-bound), None
    work = workspace(k) if work is None else work
    buffers = work[0], work[1]
    keys, dual = k if bound is None else torch.clamp(k, max=bound, out=buffers[0]).clamp_min_(-bound), None
    for i in range(steps):
        low_rank = iteration.inner(i, keys, *others)
        dual = dual if iteration.carry else None
        dual, residual = update_dual(k, keys, low_rank, dual, iteration.carry, out=buffers)
        keys = update_keys(k, low_rank, dual, residual, bound, iteration.carry, iteration.cleans(i), spare=buffers[0])
        buffers = buffers[::-1]
        del low_rank, residual  # before the next pass asks for memory
    return keys, dual
