"""RPC-Attention: Principal Attention Pursuit (the paper's Algorithm 1) in four variants.

With the scaled dual U = Y/mu, one iteration on the keys K and values V is

    T = K − L + U        S = shrink(T, tau)        K' = K − S + sigma·U
    L = softmax(K' K'ᵀ/√D) V                       U ← U + K − L − S

starting from L = U = 0; the output is the last L. The paper's text, its authors' code and the augmented
Lagrangian disagree on sigma, tau and mu, so each variant is a preset of `Pursuit`.
"""

import math
from typing import Literal, TypedDict, Unpack, overload

from torch import Tensor

from ..errors import DtypeError, InputError
from ..sdpa import (
    as_bias,
    attend,
    autocast,
    check_attn_mask,
    check_dropout,
    check_key_mask,
    check_tensors,
    check_whole,
    merge_masks,
)
from . import surrogate
from .backward import final_keys
from .cache import PursuitCache
from .reference import PursuitTrace, rpc_attention_reference
from .rule import Pursuit, threshold


class CallOptions(TypedDict, total=False):
    """Keyword arguments of `rpc_attention`."""

    q: Tensor | None
    key_mask: Tensor | None
    attn_mask: Tensor | None
    is_causal: bool
    dropout_p: float
    scale: float | None
    model_dim: int | None
    cache: PursuitCache | None
    recompute: bool


@overload
def rpc_attention(
    k: Tensor, v: Tensor, *, pursuit: Pursuit, return_trace: Literal[False] = False, **options: Unpack[CallOptions]
) -> Tensor: ...
@overload
def rpc_attention(
    k: Tensor, v: Tensor, *, pursuit: Pursuit, return_trace: Literal[True], **options: Unpack[CallOptions]
) -> tuple[Tensor, PursuitTrace]: ...
def rpc_attention(
    k: Tensor,
    v: Tensor,
    *,
    pursuit: Pursuit,
    q: Tensor | None = None,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    model_dim: int | None = None,
    cache: PursuitCache | None = None,
    recompute: bool = False,
    return_trace: bool = False,
) -> Tensor | tuple[Tensor, PursuitTrace]:
    """RPC-Attention: attention over keys without their sparse part, in `pursuit.iterations` fused passes.

    Args:
        k, v: keys (…, N, D) and values (…, N, D_v). D_v must equal D if values are "learned" and iterations > 1.
        pursuit: settings of the pursuit, such as `Pursuit(4, 4.0, "paper")`.
        q: queries (…, N, D), which the pursuit does not change. Default: the cleaned keys (symmetric attention).
        key_mask: boolean (…, N), True for a real token. Padded tokens are ignored as keys and in mu.
        attn_mask: boolean mask or float bias that broadcasts to (…, N, N), used in every pass.
        is_causal: apply a causal mask in every pass and compute mu from earlier tokens only, so that no row
            depends on a later token. Default: False.
        dropout_p: dropout probability of the attention weights, in the last pass only. Default: 0.
        scale: factor of the logits. Default: 1/√D.
        model_dim: model width C (heads × head width); required if mu_dim is "model", as in preset "authors".
        cache: `PursuitCache` of earlier tokens; needs `is_causal`. k, v, q, key_mask and the result are then
            those of the new tokens.
        recompute: recompute n(n−1)/2 earlier passes in the backward pass, saving memory. Default: False.
        return_trace: also return a `PursuitTrace`, computed by the reference with N×N matrices. Default: False.

    Returns:
        Tensor (…, N, D_v), or (tensor, `PursuitTrace`). A row whose keys are all masked is zero.

    NaN and infinity propagate as in torch's fused attention, which adds its mask to the logits: a NaN key or
    value can also affect rows that are masked from it. Where mu is computed from all tokens, a NaN key affects all
    rows of its head.
    """
    if not isinstance(pursuit, Pursuit):
        raise DtypeError(f"pursuit is {pursuit!r}; expected a Pursuit, such as Pursuit(4, 4.0, 'paper')")
    rule = pursuit.resolve()
    check_dropout(dropout_p)
    check_tensors(k)
    k, v, q = autocast(k, v, q)  # type: ignore[assignment]
    check_tensors(k, v, q)
    check_key_mask(key_mask, k)
    rows, past = (k if q is None else q).shape[-2], 0 if cache is None else cache.length
    _check_rule(rule, k, v, rows, attn_mask, model_dim, is_causal, cache, return_trace)
    check_attn_mask(attn_mask, k, rows, past + k.shape[-2])
    if return_trace:
        return rpc_attention_reference(
            k, v, pursuit=rule, q=q, key_mask=key_mask, attn_mask=attn_mask, is_causal=is_causal,
            dropout_p=dropout_p, scale=scale, model_dim=model_dim, return_trace=True,
        )  # fmt: skip

    step = None
    if cache is not None:
        step = cache.begin(k, v, key_mask, pursuit=rule, scale=scale, model_dim=model_dim, symmetric=q is None)
        recompute = False  # the cache stores the rows of all passes, so recomputing saves no memory
    bound = threshold(k, rule, key_mask, is_causal, model_dim, step)
    if surrogate.active() == "infinite":
        bound = None
    full_mask = key_mask if step is None else step.key_mask
    columns = past + k.shape[-2]
    mask, causal = merge_masks(k, full_mask, attn_mask, is_causal, rows=rows, columns=columns)
    mask = as_bias(mask, k.dtype)  # converted once, for all passes

    def attend_pass(
        i: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        if step is not None:
            shared = values is keys
            keys = step.keys(i, keys)
            values = keys if shared else step.values(values)
        return attend(queries, keys, values, mask=mask, is_causal=causal, dropout_p=dropout, scale=scale)

    def inner(i: int, keys: Tensor, v: Tensor, q: Tensor | None, mask: Tensor | None) -> Tensor:
        """Attention pass i, except the last. With `values="key"` it is symmetric even if q is given."""
        if rule.values == "key":
            return attend_pass(i, keys, keys, keys, mask)
        return attend_pass(i, keys if q is None else q, keys, v, mask)

    keys = final_keys(k, bound, (v, q, mask), inner, rule, recompute)
    out_values = keys if rule.values == "key" and rule.output == "low_rank" else v
    out = attend_pass(rule.iterations - 1, keys if q is None else q, keys, out_values, mask, dropout_p)
    if step is not None:
        step.commit()
    return out


def _check_rule(
    rule: Pursuit,
    k: Tensor,
    v: Tensor,
    rows: int,
    attn_mask: Tensor | None,
    model_dim: int | None,
    is_causal: bool,
    cache: PursuitCache | None,
    return_trace: bool,
) -> None:
    mixes = rule.values == "learned" and rule.iterations > 1
    if mixes and v.shape[-1] != k.shape[-1]:
        raise InputError(
            f"k has width {k.shape[-1]} and v has {v.shape[-1]}; they must be equal, because {rule.iterations} "
            "iterations subtract L = A·V from K (preset 'cleaned' takes any width of v)"
        )
    if rows != k.shape[-2] and (mixes or is_causal):
        raise InputError(
            f"q has {rows} rows and k has {k.shape[-2]}; this pursuit needs the same number of rows "
            "(preset 'cleaned' without is_causal takes any number of queries)"
        )
    if rows != k.shape[-2] and attn_mask is not None and rule.iterations > 1:
        raise InputError(
            f"q has {rows} rows and k has {k.shape[-2]}, but attn_mask is used between the keys too and needs "
            "the same number of rows; mask keys with key_mask instead"
        )
    if rule.mu_dim == "model" and rule.mu is None and rule.lam != math.inf and model_dim is None:
        raise InputError(
            f"preset {rule.preset!r} computes mu from the model's width; pass model_dim (heads × head width)"
        )
    if model_dim is not None:
        check_whole("model_dim", model_dim)
    if cache is not None and (not is_causal or return_trace):
        raise InputError(
            f"cache was given with is_causal={is_causal} and return_trace={return_trace}; "
            "it needs is_causal=True and return_trace=False"
        )
