"""RPC-Attention: Principal Attention Pursuit (the paper's Algorithm 1) in four readings.

With the scaled dual U = Y/mu, one iteration on the keys K and values V is

    T = K − L + U        S = shrink(T, tau)        K' = K − S + sigma·U
    L = softmax(K' K'ᵀ/√D) V                       U ← U + K − L − S

from L = U = 0, and the output is the last L. The paper's text, its authors' code and the mathematics
of the augmented Lagrangian disagree on sigma, tau and mu, so each reading is a preset of `Pursuit`.
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
    """Attention over keys freed of their sparse part, in `pursuit.iterations` fused passes.

    Args:
        k, v: keys (…, N, D) and values (…, N, D_v); D_v = D where the pursuit subtracts L from K.
        q: queries, left as they are while the pursuit works on the keys; `None` is symmetric attention.
        key_mask: boolean (…, N), True for a real token; padded ones count neither as keys nor in mu.
        attn_mask: boolean mask or float bias that broadcasts to (…, N, N), the same in every pass.
        is_causal: a causal mask in every pass and a prefix mu, so no row depends on a later token.
        dropout_p: of the attention weights, in the last pass only.
        model_dim: the model's width C, which mu_dim "model" (preset "authors") needs.
        cache: with `is_causal`, k, v, q, key_mask are those of the new tokens and the new rows come back.
        recompute: keep no pass but the last for the backward, which reruns n(n−1)/2 of them.
        return_trace: also return a `PursuitTrace`; this takes the reference path with its N×N matrices.

    A row that may see no key is zero. Non-finite input spreads as it does through torch's fused attention,
    which masks by adding: a NaN key or value can reach rows it is masked from. With a global mu a NaN key
    reaches every row of its head.
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
        recompute = False  # rows of earlier calls are kept in any case
    bound = threshold(k, rule, key_mask, is_causal, model_dim, step)
    if surrogate.active() == "infinite":
        bound = None
    full_mask = key_mask if step is None else step.key_mask
    columns = past + k.shape[-2]
    mask, causal = merge_masks(k, full_mask, attn_mask, is_causal, rows=rows, columns=columns)
    mask = as_bias(mask, k.dtype)  # once for all passes

    def attend_pass(
        i: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        if step is not None:
            shared = values is keys
            keys = step.keys(i, keys)
            values = keys if shared else step.values(values)
        return attend(queries, keys, values, mask=mask, is_causal=causal, dropout_p=dropout, scale=scale)

    def inner(i: int, keys: Tensor, v: Tensor, q: Tensor | None, mask: Tensor | None) -> Tensor:
        """Pass i < n: with `values="key"` it smooths the keys, so it is symmetric even in the query form."""
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
            f"k has width {k.shape[-1]} and v has {v.shape[-1]}; {rule.iterations} iterations subtract L = A·V "
            "from K, so the widths must be equal (preset 'cleaned' has no such need)"
        )
    if rows != k.shape[-2] and (mixes or is_causal):
        raise InputError(
            f"q has {rows} rows and k has {k.shape[-2]}; this pursuit needs as many queries as keys "
            "(preset 'cleaned' without is_causal takes any number)"
        )
    if rows != k.shape[-2] and attn_mask is not None and rule.iterations > 1:
        raise InputError(
            f"q has {rows} rows and k has {k.shape[-2]}: an attn_mask for the output does not fit the passes "
            "among the keys; mask keys with key_mask instead"
        )
    if rule.mu_dim == "model" and rule.mu is None and rule.lam != math.inf and model_dim is None:
        raise InputError(f"preset {rule.preset!r} sets mu from the model's width: pass model_dim (heads × head width)")
    if model_dim is not None:
        check_whole("model_dim", model_dim)
    if cache is not None and (not is_causal or return_trace):
        raise InputError("a cache needs is_causal=True and return_trace=False: only causal rows stay as they are")
