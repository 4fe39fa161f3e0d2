"""`Pursuit`, the settings of RPC-Attention with four presets, and the threshold computed from them."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..sdpa import check_whole, is_number
from .cache import CacheStep

PRESETS: dict[str, dict[str, Any]] = {
    # Algorithm 1 and Definition 1 as printed.
    "paper": dict(dual_sign=-1, threshold="lam/mu", mu_dim="head", values="learned", output="low_rank"),
    # The authors' released code: mu is computed with the model's width, and lam is multiplied by it.
    "authors": dict(dual_sign=-1, threshold="lam*mu", mu_dim="model", values="learned", output="low_rank"),
    # The updates that minimise the augmented Lagrangian (Candès et al., JACM 2011).
    "admm": dict(dual_sign=+1, threshold="lam/mu", mu_dim="head", values="learned", output="low_rank"),
    # Ours: L approximates the keys from the keys, and the output is plain attention over the cleaned keys K − S.
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
    """Settings of RPC-Attention: how the keys K are split into a low-rank part L and a sparse part S.

    Args:
        iterations: number of attention passes n. Default: 4.
        lam: factor of the threshold; larger values make S sparser, `math.inf` makes it zero. Default: 4.
        preset: "paper" (default), "authors", "admm" or "cleaned"; sets all of the following that are None.
        dual_sign: sign sigma of the dual in K' = K − S + sigma·U.
        threshold: threshold tau, "lam/mu" or "lam*mu".
        mu_dim: width D in mu, "head" for the head width or "model" for the model's.
        mu: fixed mu. Default: N·D/(4‖K‖₁) as in the paper, over the tokens so far where attention is causal.
        mu_grad: compute gradients through mu. Default: True.
        values: values of the passes, "learned" for V or "key" for the cleaned keys.
        output: "low_rank" for the last L, or "cleaned_keys" for attention over K − S with the values V.
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
        if not is_number(self.lam) or not self.lam >= 0:  # NaN is not
            raise InputError(f"lam is {self.lam!r}; expected a number ≥ 0, or math.inf for no shrinkage")
        if self.preset not in PRESETS:
            raise InputError(f"preset is {self.preset!r}; expected one of {', '.join(PRESETS)}")
        if self.mu is not None and not (is_number(self.mu) and 0 < self.mu < math.inf):
            raise InputError(f"mu is {self.mu!r}; expected a positive number, or None for N·D/(4‖K‖₁)")
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if given is not None and given not in choices:
                raise InputError(f"{name} is {given!r}; expected one of {', '.join(map(repr, choices))}")
        missing = {name: rule for name, rule in PRESETS[self.preset].items() if getattr(self, name) is None}
        object.__setattr__(self, "_resolved", replace(self, **missing) if missing else self)

    def given(self) -> dict[str, Any]:
        """The fields iterations, lam and preset, and all others that differ from their default."""
        main = ("iterations", "lam", "preset")
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) != f.default or f.name in main}

    def __repr__(self) -> str:
        return f"Pursuit({', '.join(f'{name}={x!r}' for name, x in self.given().items())})"

    def resolve(self) -> "Pursuit":
        """The same pursuit with every field filled in from its preset."""
        return self._resolved  # type: ignore[attr-defined, no-any-return]


def threshold(
    k: Tensor,
    rule: Pursuit,
    key_mask: Tensor | None = None,
    is_causal: bool = False,
    model_dim: int | None = None,
    step: CacheStep | None = None,
) -> Tensor | None:
    """Threshold tau as a tensor that broadcasts over k, (…, 1, 1) or (…, N, 1) if causal; None for infinity.

    With mu = N·D/(4‖K‖₁), lam/mu is 4·lam·mean|K|, computed without dividing by a norm that may be zero.
    Sums are taken in float32 or wider, because half precision overflows and loses accuracy over long sequences.
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
        total = torch.linalg.vector_norm(keys, 1, (-2, -1), keepdim=True, dtype=wide)  # allocates no |K|
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
    zero = total == 0  # where mu is infinite; dividing by 1 there avoids a gradient of 0·inf
    tau_ = size * (rule.lam / 4) / total.masked_fill(zero, 1.0)
    return tau_.masked_fill(zero, math.inf).to(k.dtype)


def _width(model_dim: int | None) -> int:
    assert model_dim is not None  # checked by `rpc_attention`
    return model_dim
