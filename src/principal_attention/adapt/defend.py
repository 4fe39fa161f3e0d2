"""Attention of a layer with `TokenPursuit`, `TokenReweighting` or `Temperature`, or after one with `TokenPursuit`."""

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..pursuit import PursuitCache, Temperature, TokenPursuit, TokenReweighting
from ..pursuit.controls import reweighted_attention
from ..pursuit.tokens import (
    counted_tokens,
    excess,
    own_distances,
    own_threshold,
    relative_distances,
    token_distances,
    token_rows,
)
from ..sdpa import attend, autocast, merge_masks
from .condemned import Penalties, Suppression
from .statistics import statistics_of

Defence = TokenPursuit | TokenReweighting | Temperature | Suppression


def defended(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    cache: PursuitCache | None = None,
    tokens: Any = None,
) -> Tensor:
    """Attention with the setting of `module`. Queries may be the last rows of the keys, if `is_causal`.

    `tokens`: `TokenLayer` of transformers' cache, with the penalties of earlier tokens.
    """
    if cache is not None:
        raise InputError(
            f"a layer with {module.rpc_pursuit} was given a PursuitCache, which is for Pursuit only; pass cache=None"
        )
    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    setting: Defence = module.rpc_pursuit
    if isinstance(setting, TokenPursuit | Suppression):
        penalty = _penalties(module, setting, k, q.shape[-2], key_mask, is_causal, tokens)
        if penalty is not None:
            attn_mask = _with_bias(attn_mask, penalty, q)
    heads = q.shape[-3] if q.ndim > 3 else 1
    if q.ndim > 3 and k.shape[-3] != heads:  # grouped-query attention
        k, v = (t.repeat_interleave(heads // k.shape[-3], dim=-3) for t in (k, v))
    mask, causal = merge_masks(k, key_mask, attn_mask, is_causal, rows=q.shape[-2], columns=k.shape[-2])
    options: dict[str, Any] = dict(mask=mask, is_causal=causal, dropout_p=dropout_p, scale=scale)
    if isinstance(setting, TokenReweighting):
        return reweighted_attention(q, k, v, reweighting=setting, **options)
    if isinstance(setting, Temperature):
        options["scale"] = (k.shape[-1] ** -0.5 if scale is None else scale) / setting.value
    return attend(q, k, v, **options)


def _penalties(
    module: Any, setting: TokenPursuit | Suppression, k: Tensor, rows: int, key_mask: Tensor | None, is_causal: bool,
    tokens: Any,
) -> Tensor | None:  # fmt: skip
    """Penalties of all keys in this layer, (…, N); None where none act."""
    state: Penalties = module.rpc_penalties
    own = None
    if isinstance(setting, TokenPursuit):
        real = key_mask
        if real is not None and 3 <= k.ndim - 1 == real.ndim:
            real = real.any(-2)  # (…, heads or 1, N)
        prefix = setting.prefix or 0
        counted = counted_tokens(k.shape[-2], prefix, real, k.device)
        new = token_rows(k)
        if tokens is not None:  # earlier tokens have their penalties
            new, counted = new[..., -rows:, :], counted[..., -rows:]
        if state.receive is not None:
            state.receive(module.rpc_layer, new, counted, is_causal)
            return None
        own = _excess(module, setting, new, counted, is_causal)
        if state.excesses is not None:
            state.excesses.append(own)
        own = setting.strength * own.clamp(min=0)
        if tokens is not None:
            own = tokens.extend(own)
    if state.receive is not None or not state.gated:
        return None
    return state.add(module.rpc_layer, own, k.shape[-2])


def _excess(module: Any, setting: TokenPursuit, rows: Tensor, counted: Tensor, is_causal: bool) -> Tensor:
    known = statistics_of(module)
    if known is not None:
        if rows.shape[-1] != known.shift.shape[-1]:
            raise InputError(
                f"the keys have {rows.shape[-1]} dimensions and the statistics {known.shift.shape[-1]}; calibrate again"
            )
        d = token_distances(rows, known.whiten, known.shift)
        return excess(relative_distances(d, counted, known.median, is_causal), known.threshold, counted)
    if is_causal:
        raise InputError("token pursuit in a causal model needs statistics of clean keys: pass calibrate to robustify")
    r = relative_distances(own_distances(rows, counted), counted, None)
    return excess(r, own_threshold(r, counted, setting.quantile), counted)


def _with_bias(attn_mask: Tensor | None, penalty: Tensor, q: Tensor) -> Tensor:
    """Mask with the penalties subtracted from the columns, (…, 1, 1, N) without a mask of the model."""
    lowest = torch.finfo(q.dtype).min / 2  # a sum with the logits stays finite, also in half precision
    bias = (-penalty).clamp(min=lowest).to(q.dtype).unsqueeze(-2)
    bias = bias.unsqueeze(-3) if q.ndim > 3 else bias
    if attn_mask is None:
        return bias
    return bias.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else bias + attn_mask
