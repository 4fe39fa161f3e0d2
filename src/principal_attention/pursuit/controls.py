"""Controls for token pursuit: `TokenReweighting` (ProTransformer) and `Temperature`, other changes of attention.

Hou et al., "ProTransformer: Robustify Transformers via Plug-and-Play Paradigm", NeurIPS 2024: attention a_j over values
v_j is the mean that minimises Σ_j a_j ‖z − v_j‖². With a robust penalty ρ in its place, Σ_j a_j ρ(‖z − v_j‖), the
minimum is found by iterating

    z ← Σ_j w_j a_j v_j / Σ_j w_j a_j,        w_j = ρ'(t)/(2t) at t = ‖z − v_j‖
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..sdpa import attention_matrix, check_whole, is_number

KINDS = ("mcp", "huber", "l1")


@dataclass(frozen=True)
class TokenReweighting:
    """Attention with a robust mean of the values, of which `iterations` steps are computed, with their true gradients.

    Args:
        kind: penalty ρ(t). "mcp": t − t²/(2γ) up to γ, then constant, so that a value beyond γ has no weight; "huber":
            t²/2 up to γ, then γt − γ²/2; "l1": t.
        iterations: number of reweightings, after plain attention. Default: 3. Zero is plain attention.
        gamma: γ, a distance in the units of the layer's values; kind "l1" has none. Default: 4, the paper's for texts.
            It must be chosen for each model: values of DeiT-tiny have norms of 6 to 7 (medians), so at 4 most weights
            of "mcp" are zero.
    """

    kind: Literal["mcp", "huber", "l1"] = "mcp"
    iterations: int = 3
    gamma: float = 4.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind is {self.kind!r}; expected one of {', '.join(map(repr, KINDS))}")
        check_whole("iterations", self.iterations, at_least=0)
        if not is_number(self.gamma) or not 0 < self.gamma <= math.inf:
            raise InputError(f"gamma is {self.gamma!r}; expected a positive number, such as 4")

    def given(self) -> dict[str, Any]:
        """The fields as words of `--robustify`."""
        own = {} if self.kind == "l1" else {"gamma": self.gamma}
        return {"preset": self.kind, "iterations": self.iterations, **own}

    def weights(self, t: Tensor) -> Tensor:
        """w at distances t > 0."""
        if self.kind == "mcp":
            return (1 / t - 1 / self.gamma).clamp(min=0) / 2
        if self.kind == "huber":
            return (self.gamma / t).clamp(max=1) / 2
        return 1 / (2 * t)


@dataclass(frozen=True)
class Temperature:
    """Attention with a temperature t, softmax(q kᵀ/(√D·t)) v.

    Below 1 it is sharper than plain attention, above 1 flatter. Biases and masks of the model are added unchanged.

    Args:
        value: temperature t. Default: 1, plain attention.
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.value) or not 0 < self.value < math.inf:
            raise InputError(f"value is {self.value!r}; expected a positive number, such as 0.7")

    def given(self) -> dict[str, Any]:
        """The fields as words of `--robustify`."""
        return {"preset": "temperature", "value": self.value}


def reweighted_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    reweighting: TokenReweighting,
    mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attention with robust means of the values, (…, N, D_v), computed with N×N matrices in float32 or wider.

    `mask` is one of `scaled_dot_product_attention`. Where all weights are zero, which kind "mcp" has where every value
    is farther than γ, the step is not taken.
    """
    weights = attention_matrix(q, k, mask=mask, is_causal=is_causal, scale=scale)  # (…, M, N)
    weights = F.dropout(weights, dropout_p)
    values = v.to(weights.dtype)
    z = weights @ values
    for _ in range(reweighting.iterations):
        each = reweighting.weights(value_distances(z, values)) * weights
        total = each.sum(-1, keepdim=True)
        none = total <= 0
        z = torch.where(none, z, each @ values / total.masked_fill(none, 1.0))
    return z.to(v.dtype)


def value_distances(z: Tensor, values: Tensor) -> Tensor:
    """‖z_i − v_j‖, (…, M, N), bounded from below by a rounding error, where the gradient is zero.

    ‖z‖² + ‖v‖² − 2zv loses half the digits to cancellation, so z = v gives about √ε·‖v‖ instead of zero.
    """
    squares = z.square().sum(-1, keepdim=True) + values.square().sum(-1).unsqueeze(-2)
    bound = torch.finfo(z.dtype).eps * squares.detach() + torch.finfo(z.dtype).tiny
    return torch.maximum(squares - 2 * z @ values.mT, bound).sqrt()
