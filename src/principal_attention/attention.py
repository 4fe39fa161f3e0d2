"""Attention as pure functions on (…, N, D) tensors: symmetric, scaled, and with the values of Theorem 1."""

import math

import torch
from torch import Tensor

from .errors import InputError
from .kernel_pca import gram_spectrum, log_kernel_sum, theorem_values
from .sdpa import (
    attend,
    autocast,
    check_attn_mask,
    check_device,
    check_dropout,
    check_key_mask,
    check_tensors,
    check_whole,
    merge_masks,
)


def symmetric_attention(
    k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Symmetric attention, softmax(K Kᵀ/√D) V: the keys are also used as queries.

    Args:
        k, v: keys (…, N, D) and values (…, N, D_v).
        key_mask, attn_mask, is_causal: masks, as in `rpc_attention`.
        dropout_p: dropout probability of the attention weights.
        scale: factor of the logits K Kᵀ. Default: 1/√D.

    Returns:
        Tensor (…, N, D_v).
    """
    return softmax_attention(
        k, k, v, key_mask=key_mask, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p, scale=scale
    )


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Softmax attention, softmax(Q Kᵀ/√D) V, with the masks of `rpc_attention`; fused for any leading dimensions."""
    check_tensors(k)
    check_dropout(dropout_p)
    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    check_tensors(k, v, q)
    check_key_mask(key_mask, k)
    check_attn_mask(attn_mask, k, q.shape[-2])
    if is_causal and q.shape[-2] != k.shape[-2]:
        raise InputError(f"q has {q.shape[-2]} rows and k has {k.shape[-2]}; is_causal needs the same number of rows")
    mask, causal = merge_masks(k, key_mask, attn_mask, is_causal, rows=q.shape[-2])
    return attend(q, k, v, mask=mask, is_causal=causal, dropout_p=dropout_p, scale=scale)


def scaled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mixing: Tensor | float | str,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Scaled Attention, softmax(Q Kᵀ/√D) (I − S) V (the paper's Remark 3).

    Args:
        q, k, v: queries and keys (…, N, D), values (…, N, D_v).
        mixing: the matrix S. A tensor that broadcasts to (…, N, N), such as a learned (heads, N, N), is S
            itself, and with `is_causal` its lower triangle. A scalar α means S = α·softmax(K Kᵀ/√D), with the
            same masks. "exact" means S = (1/N) g⁻¹gᵀ of Theorem 1, which excludes `is_causal` and `attn_mask`.
        key_mask, attn_mask, is_causal: masks, as in `rpc_attention`.
        dropout_p: dropout probability of the attention weights.
        scale: factor of the logits. Default: 1/√D.

    Returns:
        Tensor (…, N, D_v).
    """
    if not isinstance(mixing, Tensor | str | int | float):
        raise InputError(f"mixing is a {type(mixing).__name__}; expected a tensor, a number, or 'exact'")
    check_tensors(k)
    q, k, v = autocast(q, k, v)  # type: ignore[assignment]
    check_tensors(k, v, q)
    masks = dict(key_mask=key_mask, attn_mask=attn_mask, is_causal=is_causal, scale=scale)
    return softmax_attention(q, k, scaled_values(k, v, mixing=mixing, **masks), dropout_p=dropout_p, **masks)  # type: ignore[arg-type]


def scaled_values(
    k: Tensor,
    v: Tensor,
    *,
    mixing: Tensor | float | str,
    key_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """(I − S) V, the values of Scaled Attention, (…, N, D_v)."""
    if isinstance(mixing, str):
        if mixing != "exact":
            raise InputError(f"mixing is {mixing!r}; expected a matrix, a scalar, or 'exact'")
        if is_causal or attn_mask is not None:
            raise InputError(
                "mixing 'exact' takes no is_causal or attn_mask, because Theorem 1 has one g(k) for all queries; "
                "use a scalar or a matrix"
            )
        mixed = exact_mixing(k, v, key_mask=key_mask, scale=scale)
    elif isinstance(mixing, Tensor) and mixing.ndim >= 2 and mixing.numel() > 1:
        mixed = _matrix_mixing(mixing, k, v, key_mask, is_causal)
    else:
        if isinstance(mixing, Tensor) and mixing.numel() != 1:
            raise InputError(f"mixing has shape {tuple(mixing.shape)}; expected a scalar or a matrix (…, N, N)")
        alpha = mixing.to(v.dtype) if isinstance(mixing, Tensor) else mixing
        mixed = alpha * symmetric_attention(
            k, v, key_mask=key_mask, attn_mask=attn_mask, is_causal=is_causal, scale=scale
        )
    return v - mixed


def _matrix_mixing(mixing: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, is_causal: bool) -> Tensor:
    check_key_mask(key_mask, k)
    n = k.shape[-2]
    lead = zip(reversed(mixing.shape[:-2]), reversed(k.shape[:-2]), strict=False)
    if mixing.shape[-2:] != (n, n) or mixing.ndim > k.ndim or any(m not in (1, s) for m, s in lead):
        raise InputError(
            f"mixing has shape {tuple(mixing.shape)} and k has {tuple(k.shape)}; expected (…, {n}, {n}), "
            "such as one matrix per head"
        )
    check_device("mixing", mixing, k)
    mixing = mixing.to(v.dtype)
    if is_causal:
        mixing = mixing.tril()
    if key_mask is not None:
        v = v.masked_fill(~key_mask.unsqueeze(-1), 0.0)
    return mixing @ v


def exact_mixing(k: Tensor, v: Tensor, *, key_mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """S·V with S = (1/N) g⁻¹gᵀ of Theorem 1. S has rank one: each row of S·V is a multiple of one weighted mean,

        (SV)ⱼ = exp(lse(log g) − log N − log gⱼ) · Σ softmax(log g)ⱼ' vⱼ'

    computed from logarithms in float64. Where log g spans more than 88, the factor exceeds float32 and the
    result is infinite; the paper learns S for this reason.
    """
    check_tensors(k, v)
    check_key_mask(key_mask, k)
    wide, keys = v.double(), k.double()
    log_g = log_kernel_sum(keys, keys, k.shape[-1] ** -0.5 if scale is None else scale, key_mask)
    counted = log_g if key_mask is None else log_g.masked_fill(~key_mask, -math.inf)
    count = (
        torch.full_like(log_g[..., :1], k.shape[-2])
        if key_mask is None
        else key_mask.sum(-1, keepdim=True).clamp(min=1)
    )
    total = counted.logsumexp(-1, keepdim=True)  # −inf where no token is valid, which makes the factor zero
    weights = (counted - total.clamp(min=torch.finfo(total.dtype).min)).exp()
    if key_mask is not None:
        wide = wide.masked_fill(~key_mask.unsqueeze(-1), 0.0)
    mean = weights.unsqueeze(-2) @ wide  # (…, 1, D_v)
    gain = total - torch.log(count) - log_g
    if key_mask is not None:
        gain = gain.masked_fill(~key_mask, -math.inf)  # padded rows are zero
    return (gain.exp().unsqueeze(-1) * mean).to(v.dtype)


def kernel_pca_attention(
    q: Tensor,
    k: Tensor,
    *,
    n_components: int,
    dropout_p: float = 0.0,
    scale: float | None = None,
    differentiable: bool = False,
) -> Tensor:
    """Attention with the values of Theorem 1: its outputs are the projections of φ(q) on the keys' principal axes.

    Args:
        q, k: queries and keys (…, N, D).
        n_components: number of principal axes, at most N − 1. Components beyond the numerical rank are zero
            (`KernelPCA` raises instead), so that a training step or a compiled graph does not depend on the rank.
        dropout_p: dropout probability of the attention weights.
        scale: factor of the logits. Default: 1/√D.
        differentiable: compute gradients of the values with respect to the keys. Default: False, because
            gradients of eigenvectors grow without bound as two eigenvalues approach each other.

    Returns:
        Tensor (…, N, n_components).
    """
    check_tensors(k)
    q, k = autocast(q, k)  # type: ignore[assignment]
    check_tensors(k, q=q)
    check_whole("n_components", n_components)
    if n_components > k.shape[-2] - 1:
        raise InputError(
            f"n_components is {n_components}, but {k.shape[-2]} centred keys span at most {k.shape[-2] - 1} axes; "
            "lower n_components"
        )
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    keys = (k if differentiable else k.detach()).double()
    _, values = theorem_values(gram_spectrum(keys, scale), n_components)
    return softmax_attention(q, k, values.to(k.dtype), dropout_p=dropout_p, scale=scale)
