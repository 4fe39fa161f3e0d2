"""The pointwise half of the pursuit, between two attention passes, and what its backward keeps.

Written out, an iteration makes S and re-reads K, L, S and U five times. Substituting S = T − clip(T)
gives the same numbers from fewer reads. With c = 1 − sigma (0 or 2) and L, K' of the last pass:

    U' = K' − L + c·U          T = K − L + U'
    next keys = L + clip(T, tau) − c·U'                          (low_rank)
              = K − (T − clip(T, tau))                           (cleaned_keys, after the last update of S)

An entry inside the threshold moves by T, one outside by a constant, so the backward needs one byte an
entry that says which, and nothing else is kept beside the passes' own inputs and outputs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ._sdpa import lean_allowed

if TYPE_CHECKING:
    from .pursuit import Pursuit

Pair = tuple[Tensor, Tensor | None]


def final_keys(
    k: Tensor,
    bound: Tensor | None,
    inner: Callable[[int, Tensor], Tensor],
    rule: "Pursuit",
    *,
    recompute: bool,
    inputs: tuple[Tensor | None, ...],
) -> Tensor:
    """The keys of the last pass, after n updates of S and the n − 1 attention passes `inner` between them."""
    if bound is None and rule.output == "cleaned_keys":
        return k  # nothing is ever shrunk, and the inner passes would change nothing
    steps, carry, lean = rule.iterations - 1, 1 - int(rule.dual_sign or 1), lean_allowed()
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (k, *inputs))
    if lean and not needs_grad:
        return _in_place(k, bound, inner, steps, carry, cleaned=rule.output == "cleaned_keys")
    first = _Clip.apply if lean else plain_clip
    step = _Step.apply if lean and bound is not None else plain_step

    def advance(i: int) -> Pair:
        """K' of pass i and the dual before it."""
        if i == 0:
            return k if bound is None else first(k, bound), None
        keys, dual = before(i - 1)
        cleaned = rule.output == "cleaned_keys" and i == steps
        return step(k, keys, inner(i - 1, keys), dual, bound, carry, cleaned)  # type: ignore[no-any-return]

    def before(i: int) -> Pair:
        if not (recompute and lean) or i == 0:
            return advance(i)
        # A checkpoint inside a checkpoint: the backward of pass i reruns the i passes before it and
        # keeps none of them, so memory does not grow with the number of iterations.
        return checkpoint(advance, i, use_reentrant=False, preserve_rng_state=False)

    return before(steps)[0]


def plain_clip(x: Tensor, bound: Tensor) -> Tensor:
    return torch.clamp(x, -bound, bound)


def plain_step(
    k: Tensor, keys: Tensor, low_rank: Tensor, dual: Tensor | None, bound: Tensor | None, carry: int, cleaned: bool
) -> Pair:
    """The step as the head of this file writes it; compilers and torch.func take this one."""
    new_dual = keys - low_rank if dual is None or not carry else keys - low_rank + carry * dual
    residual = k - low_rank + new_dual
    clipped = residual if bound is None else plain_clip(residual, bound)
    if cleaned:
        return k - (residual - clipped), new_dual
    return low_rank + clipped - carry * new_dual, new_dual


def _clip_(x: Tensor, bound: Tensor) -> Tensor:
    # Two one-sided clamps: with a broadcast bound each is vectorised, the two-sided one is not.
    return x.clamp_max_(bound).clamp_min_(-bound)


def _residual(
    k: Tensor, keys: Tensor, low_rank: Tensor, dual: Tensor | None, carry: int, out: tuple[Any, Any] = (None, None)
) -> tuple[Tensor, Tensor]:
    """U' and T; `out` may name the two buffers they go to, `keys` and `dual` among them."""
    new_dual = torch.sub(keys, low_rank, out=out[0])
    if dual is not None and carry:
        new_dual = new_dual.add_(dual, alpha=carry)
    return new_dual, torch.sub(new_dual, low_rank, out=out[1]).add_(k)


def _next_keys(
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


def _in_place(
    k: Tensor, bound: Tensor | None, inner: Callable[[int, Tensor], Tensor], steps: int, carry: int, cleaned: bool
) -> Tensor:
    """Without gradients: two buffers serve the whole pursuit. Fresh memory would cost more than the arithmetic,
    and one block of it less than two, since allocators give large freed blocks back to the system."""
    if not steps:
        return k if bound is None else k.clamp(max=bound).clamp_min_(-bound)
    strides = torch.empty_like(k, device="meta").stride()
    work = torch.empty_strided((2, *k.shape), (k.numel(), *strides), dtype=k.dtype, device=k.device)
    buffers = work[0], work[1]
    keys, dual = k if bound is None else _clip_(buffers[0].copy_(k), bound), None
    for i in range(steps):
        low_rank = inner(i, keys)
        dual, residual = _residual(k, keys, low_rank, dual, carry, out=buffers)
        keys = _next_keys(k, low_rank, dual, residual, bound, carry, cleaned and i == steps - 1, spare=buffers[0])
        buffers = buffers[::-1]
        del low_rank, residual  # before the next pass asks for memory
    return keys


def _side(x: Tensor, bound: Tensor) -> Tensor:
    """+1 above the threshold, −1 below its negative, 0 inside, as int8."""
    return (x > bound).view(torch.int8).sub_((x < -bound).view(torch.int8))


class _Clip(torch.autograd.Function):
    """clip(x, bound), keeping a byte an entry."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bound: Tensor) -> Tensor:
        ctx.save_for_backward(_side(x, bound))
        ctx.bound_shape = bound.shape
        return x.clamp(max=bound).clamp_min_(-bound)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (side,) = ctx.saved_tensors
        grad_bound = (grad * side).sum_to_size(ctx.bound_shape) if ctx.needs_input_grad[1] else None
        return grad.masked_fill(side != 0, 0.0), grad_bound


class _Step(torch.autograd.Function):
    """`plain_step`, keeping a byte an entry."""

    @staticmethod
    def forward(
        ctx: Any,
        k: Tensor,
        keys: Tensor,
        low_rank: Tensor,
        dual: Tensor | None,
        bound: Tensor,
        carry: int,
        cleaned: bool,
    ) -> tuple[Tensor, Tensor]:
        new_dual, residual = _residual(k, keys, low_rank, dual, carry)
        ctx.save_for_backward(_side(residual, bound))
        ctx.bound_shape = bound.shape
        ctx.carry, ctx.cleaned = carry, cleaned
        ctx.set_materialize_grads(False)
        return _next_keys(k, low_rank, new_dual, residual, bound, carry, cleaned), new_dual

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_dual: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if grad is None:
            if grad_dual is None:
                return (None,) * 7
            grad = torch.zeros_like(grad_dual)
        (side,) = ctx.saved_tensors
        carry, grad_bound = ctx.carry, None
        outside = grad.mul(side)
        if ctx.needs_input_grad[4]:
            grad_bound = outside.sum_to_size(ctx.bound_shape)
        outside.mul_(side)  # the part of grad that met the threshold
        inside = grad - outside
        # T moves the keys where it is inside, or takes away what was shrunk when they are cleaned.
        into_residual = -outside if ctx.cleaned else inside
        into_dual = into_residual if ctx.cleaned or not carry else into_residual.sub(grad, alpha=carry)
        if grad_dual is not None:
            into_dual = into_dual + grad_dual
        # From the keys themselves (low_rank only), from T, and from U'.
        into_low_rank = (-into_residual if ctx.cleaned else outside).sub(into_dual)
        into_old_dual = carry * into_dual if carry and ctx.needs_input_grad[3] else None
        return inside, into_dual, into_low_rank, into_old_dual, grad_bound, None, None
