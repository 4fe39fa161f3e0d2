"""What a pursuit does to the keys: the readings of Algorithm 1 by name, and the threshold that each sets."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..sdpa import check_whole
from .cache import CacheStep

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
