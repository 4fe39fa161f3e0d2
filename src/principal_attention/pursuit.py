"""RPC-Attention: Principal Attention Pursuit (the paper's Algorithm 1) in four readings.

With the scaled dual U = Y/mu, one iteration on the keys K and values V is

    T = K − L + U        S = shrink(T, tau)        K' = K − S + sigma·U
    L = softmax(K' K'ᵀ/√D) V                       U ← U + K − L − S

from L = U = 0, and the output is the last L. The paper's text, its authors' code and the mathematics
of the augmented Lagrangian disagree on sigma, tau and mu, so each reading is a preset of `Pursuit`.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from . import surrogate
from ._lean import final_keys
from ._sdpa import (
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
from .cache import CacheStep, PursuitCache
from .errors import DtypeError, InputError

PRESETS: dict[str, dict[str, Any]] = {
    # Algorithm 1 and Definition 1 as printed.
    "paper": dict(dual_sign=-1, threshold="lam/mu", mu_dim="head", values="learned", output="low_rank"),
    # The released code: mu counts the model's width and multiplies lam.
    "authors": dict(dual_sign=-1, threshold="lam*mu", mu_dim="model", values="learned", output="low_rank"),
    # Completing the square of the augmented Lagrangian (Candès et al., JACM 2011).
    "admm": dict(dual_sign=+1, threshold="lam/mu", mu_dim="head", values="learned", output="low_rank"),
    # Ours: the pursuit smooths the keys themselves, and one plain attention runs over the cleaned keys.
    "cleaned": dict(dual_sign=+1, threshold="lam/mu", mu_dim="head", values="key", output="cleaned_keys"),
}

_CHOICES: dict[str, tuple[Any, ...]] = {
    "dual_sign": (-1, +1),
    "threshold": ("lam/mu", "lam*mu"),
    "mu_dim": ("head", "model"),
    "values": ("learned", "key"),
    "output": ("low_rank", "cleaned_keys"),
}


@dataclass(frozen=True, repr=False)
class Pursuit:
    """How keys are split into a low-rank and a sparse part; fields left `None` are as the preset says.

    `lam` may be infinite: nothing is shrunk then. `mu=None` is the paper's N·D/(4‖K‖₁) (a prefix of it
    where attention is causal); `mu_grad` lets gradients through it.
    """

    iterations: int = 4
    lam: float = 4.0
    preset: str = "paper"
    dual_sign: Literal[-1, 1] | None = None
    threshold: Literal["lam/mu", "lam*mu"] | None = None
    mu_dim: Literal["head", "model"] | None = None
    mu: float | None = None
    mu_grad: bool = True
    values: Literal["learned", "key"] | None = None
    output: Literal["low_rank", "cleaned_keys"] | None = None

    def __post_init__(self) -> None:
        check_whole("iterations", self.iterations)
        if not _is_number(self.lam) or not self.lam >= 0:  # NaN is not
            raise InputError(f"lam is {self.lam!r}; expected a number from 0, math.inf for no shrinkage")
        if self.preset not in PRESETS:
            raise InputError(f"preset is {self.preset!r}; expected one of {', '.join(PRESETS)}")
        if self.mu is not None and not (_is_number(self.mu) and 0 < self.mu < math.inf):
            raise InputError(f"mu is {self.mu!r}; expected a positive number, or None for N·D/(4‖K‖₁)")
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if given is not None and given not in choices:
                raise InputError(f"{name} is {given!r}; expected one of {', '.join(map(repr, choices))}")
        missing = {name: rule for name, rule in PRESETS[self.preset].items() if getattr(self, name) is None}
        object.__setattr__(self, "_resolved", replace(self, **missing) if missing else self)

    def given(self) -> dict[str, Any]:
        """The three main fields, and any other that was set by hand."""
        main = ("iterations", "lam", "preset")
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) != f.default or f.name in main}

    def __repr__(self) -> str:
        return f"Pursuit({', '.join(f'{name}={x!r}' for name, x in self.given().items())})"

    def resolve(self) -> "Pursuit":
        """The same pursuit with every field filled in from its preset."""
        return self._resolved  # type: ignore[attr-defined, no-any-return]


def _is_number(x: object) -> bool:
    return isinstance(x, int | float | torch.SymFloat) and not isinstance(x, bool)


@dataclass(frozen=True)
class PursuitTrace:
    """What happened in each iteration, (iterations, …) over the leading dimensions, valid tokens only."""

    residual: Tensor  # ‖K − L − S‖ / ‖K‖; for output "cleaned_keys" the last L is that of the pass before
    sparsity: Tensor  # share of non-zeros in S
    entropy: Tensor  # of the attention rows, in nats
    low_rank: Tensor  # the last L and S themselves, (…, N, D)
    sparse: Tensor


class Options(TypedDict, total=False):
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
    k: Tensor, v: Tensor, *, pursuit: Pursuit, return_trace: Literal[False] = False, **options: Unpack[Options]
) -> Tensor: ...
@overload
def rpc_attention(
    k: Tensor, v: Tensor, *, pursuit: Pursuit, return_trace: Literal[True], **options: Unpack[Options]
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
        from .reference import rpc_attention_reference

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


def threshold(
    k: Tensor,
    rule: Pursuit,
    key_mask: Tensor | None = None,
    is_causal: bool = False,
    model_dim: int | None = None,
    step: CacheStep | None = None,
) -> Tensor | None:
    """tau, as a tensor that broadcasts over k: (…, 1, 1), or (…, N, 1) when causal. `None` is infinity.

    mu = N·D/(4‖K‖₁) makes lam/mu = 4·lam·mean|K|, which needs no division by a norm that may be zero;
    sums are taken in float32 at least, since half precision overflows and drifts over long sequences.
    """
    if rule.lam == math.inf:
        return None
    inverse = rule.threshold == "lam*mu"
    if rule.mu is not None:
        tau = rule.lam * rule.mu if inverse else rule.lam / rule.mu
        return torch.full((1, 1), tau, dtype=k.dtype, device=k.device)
    keys, wide = k if rule.mu_grad else k.detach(), torch.promote_types(k.dtype, torch.float32)
    count: Tensor | int = k.shape[-2]
    if key_mask is None and not is_causal:
        total = torch.linalg.vector_norm(keys, 1, (-2, -1), keepdim=True, dtype=wide)  # makes no |K|
    else:
        norms = keys.abs().sum(-1, dtype=wide)  # (…, N)
        ones = torch.ones(k.shape[-2], dtype=wide, device=k.device) if key_mask is None else key_mask.to(wide)
        if key_mask is not None:
            norms = norms.masked_fill(~key_mask, 0.0)
        if step is not None:
            norms, ones = step.running(norms, ones)
        elif is_causal:
            norms, ones = norms.cumsum(-1), ones.cumsum(-1)
        else:
            norms, ones = norms.sum(-1, keepdim=True), ones.sum(-1, keepdim=True)
        total, count = norms.unsqueeze(-1), ones.clamp(min=1.0).unsqueeze(-1)
    size = count * (k.shape[-1] if rule.mu_dim == "head" else _width(model_dim))
    if not inverse:
        return (total * (4 * rule.lam) / size).to(k.dtype)
    zero = total == 0  # mu is infinite there; the inner where keeps its gradient from becoming 0·inf
    tau_ = size * (rule.lam / 4) / total.masked_fill(zero, 1.0)
    return tau_.masked_fill(zero, math.inf).to(k.dtype)


def _width(model_dim: int | None) -> int:
    assert model_dim is not None  # checked on entry
    return model_dim
