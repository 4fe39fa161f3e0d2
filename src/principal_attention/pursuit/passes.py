"""Pointwise arithmetic of the pursuit, between two attention passes.

The formulas of `rpc.py` compute S and read K, L, S and U several times. Substituting S = T − clip(T) gives the
same result with fewer reads. With c = 1 − sigma (0 or 2), and L and K' of the previous pass:

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
    """The steps of a pursuit between its first and its last attention pass."""

    steps: int  # n − 1
    carry: int  # c = 1 − sigma
    cleaned: bool  # whether the last step returns K − S
    inner: Inner  # attention pass: (index, keys, *other tensors) -> L

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
    """One step in plain operations, for compilers, torch.func and tests. Returns the next keys and the dual.

    The dual is multiplied by c in the argument and in the result, which saves a tensor in the backward pass.
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
    # With a broadcast bound, torch vectorises one-sided clamps but not the two-sided clamp.
    return x.clamp_max_(bound).clamp_min_(-bound)


def update_dual(
    k: Tensor, keys: Tensor, low_rank: Tensor, dual: Tensor | None, carry: int, out: tuple[Any, Any] = (None, None)
) -> tuple[Tensor, Tensor]:
    """U' and T. `out` holds optional buffers for the two results, which may be `keys` and `dual` themselves."""
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
    """The next keys. Overwrites `residual`, and `spare` if given."""
    if cleaned:
        assert bound is not None  # `final_keys` returns early when the threshold is infinite
        clipped = _clip_(residual.clone() if spare is None else spare.copy_(residual), bound)
        return torch.sub(k, residual.sub_(clipped), out=spare)
    if bound is not None:
        residual = _clip_(residual, bound)
    residual = residual.add_(low_rank)
    return residual.sub_(dual, alpha=carry) if carry else residual


def workspace(k: Tensor) -> Tensor:
    """Two buffers of the shape of k, (2, …, N, D), which all steps reuse. Allocating memory in each step would take
    longer than the arithmetic; the buffers are one block because allocators return large freed blocks to the system."""
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
    """Run the first `steps` steps in place, without gradients. Returns the keys after them and the dual."""
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
        del low_rank, residual  # frees memory before the next pass
    return keys, dual
