"""Reference implementation of RPC-Attention: Algorithm 1 in the paper's notation, with explicit N×N matrices."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..sdpa import attention_matrix, merge_masks
from .rule import Pursuit


@dataclass(frozen=True)
class PursuitTrace:
    """Measurements of each iteration over valid tokens, (iterations, …) with the leading dimensions of k."""

    residual: Tensor  # ‖K − L − S‖ / ‖K‖; with output "cleaned_keys", the last entry uses L of the previous pass
    sparsity: Tensor  # share of non-zero entries in S, from 0 to 1
    entropy: Tensor  # mean entropy of the attention rows, in nats
    low_rank: Tensor  # L of the last iteration, (…, N, D)
    sparse: Tensor  # S of the last iteration, (…, N, D)


def shrink(x: Tensor, tau: Tensor | float) -> Tensor:
    """S_tau(x) = sgn(x)·max(|x| − tau, 0)."""
    return x.sgn() * (x.abs() - tau).clamp(min=0)


def rpc_attention_reference(
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
    return_trace: bool = False,
) -> Tensor | tuple[Tensor, PursuitTrace]:
    """The result of `rpc_attention`, computed with explicit N×N matrices and without a cache, for reading and tests.

    The arguments are those of `rpc_attention`; they are not checked.
    """
    rule = pursuit.resolve()
    valid = torch.ones(k.shape[:-1], dtype=torch.bool, device=k.device)
    valid = valid if key_mask is None else valid & key_mask
    tau = _tau(k, valid, rule, is_causal, model_dim)
    sigma, n = rule.dual_sign or 1, rule.iterations
    rows = (k if q is None else q).shape[-2]
    masks = {"inner": merge_masks(k, key_mask, attn_mask, is_causal, rows=k.shape[-2])}
    masks["outer"] = masks["inner"] if rows == k.shape[-2] else merge_masks(k, key_mask, attn_mask, False, rows=rows)

    def attention(queries: Tensor, keys: Tensor, where: str) -> Tensor:
        mask, causal = masks[where]
        return attention_matrix(queries, keys, mask=mask, is_causal=causal, scale=scale).to(v.dtype)

    low_rank = dual = torch.zeros_like(k)
    residuals, sparsities, entropies = [], [], []
    for i in range(n):
        last = i == n - 1
        sparse = torch.zeros_like(k) if tau is None else shrink(k - low_rank + dual, tau)
        if last and rule.output == "cleaned_keys":
            keys, values = k - sparse, v
        else:
            keys = k - sparse + sigma * dual
            values = keys if rule.values == "key" else v
        symmetric = q is None or (rule.values == "key" and not last)
        weights = attention(keys if symmetric else q, keys, "outer" if last else "inner")  # type: ignore[arg-type]
        out = F.dropout(weights, dropout_p if last else 0.0) @ values
        if not (last and rule.output == "cleaned_keys") and out.shape == k.shape:
            low_rank = out
            dual = dual + k - low_rank - sparse
        elif rule.output == "low_rank":
            low_rank = torch.full_like(k, math.nan)  # L and K have different shapes, so the residual is undefined
        if return_trace:
            residuals.append(_norm(k - low_rank - sparse, valid) / _norm(k, valid))
            sparsities.append(((sparse != 0).sum(-1) * valid).sum(-1) / (valid.sum(-1) * k.shape[-1]))
            entropies.append(_entropy(weights, valid))
    if not return_trace:
        return out
    return out, PursuitTrace(torch.stack(residuals), torch.stack(sparsities), torch.stack(entropies), low_rank, sparse)


def _tau(k: Tensor, valid: Tensor, rule: Pursuit, is_causal: bool, model_dim: int | None) -> Tensor | float | None:
    if rule.lam == math.inf:
        return None
    if rule.mu is not None:
        return rule.lam * rule.mu if rule.threshold == "lam*mu" else rule.lam / rule.mu
    keys = k if rule.mu_grad else k.detach()
    see = torch.ones(k.shape[-2], k.shape[-2], dtype=torch.bool, device=k.device)
    see = (see.tril() if is_causal else see) & valid.unsqueeze(-2)  # (…, N, N): keys that count in the mu of a row
    wide = torch.promote_types(k.dtype, torch.float32)
    norm = see.to(wide) @ keys.to(wide).abs().masked_fill(~valid.unsqueeze(-1), 0).sum(-1, keepdim=True)
    dim = k.shape[-1] if rule.mu_dim == "head" else model_dim
    if dim is None:
        raise InputError(f"preset {rule.preset!r} computes mu from the model's width; pass model_dim")
    count = see.sum(-1, keepdim=True).to(wide).clamp(min=1)
    if rule.threshold == "lam/mu":
        return (rule.lam * 4 * norm / (count * dim)).to(k.dtype)
    mu = count * dim / (4 * torch.where(norm > 0, norm, 1.0))
    return torch.where(norm > 0, rule.lam * mu, math.inf).to(k.dtype)


def _norm(x: Tensor, valid: Tensor) -> Tensor:
    return x.masked_fill(~valid.unsqueeze(-1), 0).flatten(-2).norm(dim=-1)


def _entropy(weights: Tensor, valid: Tensor) -> Tensor:
    entropy = -torch.special.xlogy(weights, weights).sum(-1)  # (…, rows)
    if entropy.shape != valid.shape:
        return entropy.mean(-1)
    return (entropy * valid).sum(-1) / valid.sum(-1)
