"""Execution of the pursuit: in place without gradients, with little saved memory for gradients, recomputed on request,
and in plain operations for compilers.

The gradient of a step depends only on whether an entry of T is inside the threshold, above it or below its negative.
The backward pass therefore saves one byte per entry for each step, besides the inputs and outputs of the attention.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge

from ..sdpa import lean_allowed
from . import surrogate
from .passes import Clip, Inner, Iteration, Pair, in_place, plain_clip, plain_step, update_dual, update_keys, workspace
from .rule import Pursuit

Step = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, int, bool], Pair]


def final_keys(
    k: Tensor, bound: Tensor | None, others: tuple[Tensor | None, ...], inner: Inner, rule: Pursuit, recompute: bool
) -> Tensor:
    """Keys (…, N, D) of the last pass, after n updates of S and the n − 1 attention passes between them.

    Args:
        bound: threshold tau that broadcasts over k; None for infinity.
        others: all tensors except the keys that `inner` depends on.
        inner: `inner(i, keys, *others)` computes attention pass i.
        recompute: recompute earlier passes in the backward pass, saving memory.
    """
    if bound is None and rule.output == "cleaned_keys":
        return k  # S = 0, so the cleaned keys are K itself
    iteration = Iteration(rule.iterations - 1, 1 - int(rule.dual_sign or 1), rule.output == "cleaned_keys", inner)
    if surrogate.active() == "straight" or not lean_allowed():
        clip = surrogate.straight_clip if surrogate.active() == "straight" else plain_clip
        return _unrolled(k, bound, others, iteration, clip=clip, step=partial(plain_step, clip=clip))
    if not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (k, *others))):
        return in_place(k, bound, others, iteration, iteration.steps)[0]
    if recompute and iteration.steps:
        return _Recomputed.apply(iteration, k, bound, *others)  # type: ignore[no-any-return]
    if bound is None:
        # Without a threshold the steps are linear and autograd saves no tensors for them.
        return _unrolled(k, bound, others, iteration, clip=plain_clip, step=plain_step)
    return _unrolled(k, bound, others, iteration, clip=_Clip.apply, step=_Step.apply)


def _unrolled(
    k: Tensor, bound: Tensor | None, others: tuple[Tensor | None, ...], iteration: Iteration, clip: Clip, step: Step
) -> Tensor:
    keys, dual = k if bound is None else clip(k, bound), None
    for i in range(iteration.steps):
        keys, dual = step(k, keys, iteration.inner(i, keys, *others), dual, bound, iteration.carry, iteration.cleans(i))
    return keys


def _side(x: Tensor, bound: Tensor) -> Tensor:
    """+1 above the threshold, −1 below its negative, 0 inside, as int8."""
    return (x > bound).view(torch.int8).sub_((x < -bound).view(torch.int8))


class _Clip(torch.autograd.Function):
    """clip(x, bound); saves one byte per entry for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bound: Tensor) -> Tensor:
        ctx.save_for_backward(_side(x, bound))
        ctx.bound_shape = bound.shape
        return x.clamp(max=bound).clamp_min_(-bound)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (side,) = ctx.saved_tensors
        return _clip_backward(grad, side, ctx.bound_shape if ctx.needs_input_grad[1] else None)


def _clip_backward(grad: Tensor, side: Tensor, bound_shape: torch.Size | None) -> tuple[Tensor, Tensor | None]:
    into_bound = None if bound_shape is None else (grad * side).sum_to_size(bound_shape)
    return grad.masked_fill(side != 0, 0.0), into_bound


class _Step(torch.autograd.Function):
    """`plain_step` with a threshold; saves one byte per entry for the backward pass."""

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
    ) -> Pair:
        new_dual, residual = update_dual(k, keys, low_rank, dual, 1)
        ctx.save_for_backward(_side(residual, bound))
        ctx.bound_shape, ctx.carry, ctx.cleaned = bound.shape, carry, cleaned
        ctx.set_materialize_grads(False)
        if carry and not cleaned:
            new_dual.mul_(carry)
        keys = update_keys(k, low_rank, new_dual, residual, bound, 1 if carry else 0, cleaned)
        return keys, new_dual if carry and not cleaned else None

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_dual: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if grad is None:
            if grad_dual is None:
                return (None,) * 7
            grad = torch.zeros_like(grad_dual)
        (side,) = ctx.saved_tensors
        into_k, into_keys, into_low_rank, into_bound = _step_backward(
            grad, grad_dual, side, ctx.bound_shape if ctx.needs_input_grad[4] else None, ctx.carry, ctx.cleaned
        )
        into_dual = into_keys if ctx.needs_input_grad[3] else None
        return into_k, into_keys, into_low_rank, into_dual, into_bound, None, None


def _step_backward(
    grad: Tensor,
    grad_dual: Tensor | None,
    side: Tensor | None,
    bound_shape: torch.Size | None,
    carry: int,
    cleaned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients with respect to k, keys, low_rank and bound of one step; the gradient of dual equals that of keys."""
    if side is None:
        outside, inside, into_bound = torch.zeros_like(grad), grad.clone(), None
    else:
        outside = grad.mul(side)
        into_bound = None if bound_shape is None else outside.sum_to_size(bound_shape)
        outside.mul_(side)  # gradient of the entries beyond the threshold
        inside = grad - outside
    if cleaned:  # the keys are K − (T − clip(T)), and T = K − L + U' = K + K' − 2L + c·U
        into_keys = -outside
        return inside, into_keys, outside.mul_(2), into_bound
    into_keys = inside  # the keys are L + clip(T) − c·U'
    if carry:
        into_keys = (-grad if grad_dual is None else grad_dual - grad).mul_(carry).add_(inside)
    return inside, into_keys, outside.sub_(into_keys), into_bound


class _Recomputed(torch.autograd.Function):
    """The whole pursuit, saving only its inputs. The backward pass of each step recomputes the steps before it, so
    memory does not grow with the number of iterations n, and time grows with n²."""

    @staticmethod
    def forward(ctx: Any, iteration: Iteration, k: Tensor, bound: Tensor | None, *others: Tensor | None) -> Tensor:
        ctx.iteration = iteration
        ctx.save_for_backward(k, bound, *others)
        return in_place(k, bound, others, iteration, iteration.steps)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        iteration: Iteration = ctx.iteration
        k, bound, *others = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        leaves = [t if t is None else t.detach().requires_grad_(n) for t, n in zip(others, needed, strict=True)]
        wanted = [t for t in leaves if t is not None and t.requires_grad]
        bound_shape = bound.shape if ctx.needs_input_grad[2] else None
        sums: list[Tensor | None] = [None] * (2 + len(wanted))
        grad_dual: Tensor | None = None
        work = workspace(k) if iteration.steps > 1 else None
        for i in reversed(range(iteration.steps)):
            work = work if i else None
            keys, dual = in_place(k, bound, tuple(others), iteration, i, work)
            with torch.enable_grad():
                keys = keys.detach().requires_grad_()
                low_rank = iteration.inner(i, keys, *leaves)
            through = get_gradient_edge(low_rank)
            side = None if bound is None else _side_of_step(k, keys, low_rank, dual, bound, iteration.carry)
            into_k, into_keys, into_low_rank, into_bound = _step_backward(
                grad, grad_dual, side, bound_shape, iteration.carry, iteration.cleans(i)
            )
            sums[:2] = _plus(sums[0], into_k), _plus(sums[1], into_bound)
            grad_dual = None
            del into_k, dual, low_rank, grad  # frees memory for the backward of the attention
            grad, *found = torch.autograd.grad(through, [keys, *wanted], into_low_rank, allow_unused=True)
            grad = grad.add_(into_keys)
            grad_dual = into_keys if iteration.carry else None
            sums[2:] = map(_plus, sums[2:], found)
            del keys, into_low_rank, found
        first = (grad, None) if bound is None else _clip_backward(grad, _side(k, bound), bound_shape)
        sums[:2] = map(_plus, sums[:2], first)
        return None, *sums[:2], *_spread(sums[2:], leaves)


@torch.no_grad()
def _side_of_step(k: Tensor, keys: Tensor, low_rank: Tensor, dual: Tensor | None, bound: Tensor, carry: int) -> Tensor:
    return _side(update_dual(k, keys, low_rank, dual if carry else None, carry)[1], bound)


def _plus(total: Tensor | None, new: Tensor | None) -> Tensor | None:
    """total + new, computed in place in `total`; None counts as zero."""
    return new if total is None else total if new is None else total.add_(new)


def _spread(sums: list[Tensor | None], leaves: list[Tensor | None]) -> list[Tensor | None]:
    given = iter(sums)
    return [next(given) if t is not None and t.requires_grad else None for t in leaves]
