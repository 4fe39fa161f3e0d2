"""Token pursuit: K = L + S with a row-sparse S, for errors of whole tokens.

The model is that of Outlier Pursuit (Xu, Caramanis and Sanghavi, arXiv 1010.4237), with the ellipsoid of clean keys in
the place of a low-rank L. The keys of all heads of a token are one row k_j of width C. With the mean m and the
covariance Σ of clean keys,

    d_j² = (k_j − m)ᵀ (Σ + ρI)⁻¹ (k_j − m)         r_j = d_j / max(median_j d_j, clean median)
    S_j = (1 − θ/r_j)₊ (k_j − m)                   penalty_j = κ (r_j/θ − 1)₊

S_j is the row shrinkage of the ℓ₂,₁ norm in the metric of the ellipsoid, θ a quantile of the r of clean tokens. A token
with S_j ≠ 0 is condemned: its penalty is subtracted from the logits of its column, in this layer and in all later ones.
Tensors of keys are (…, N, C); distances, ratios and penalties are (…, N).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, NonFiniteError
from ..sdpa import check_whole, is_number

# ρ as a share of tr Σ/C. Calibrated: measured on DeiT-tiny, whose keys lie in fewer than C dimensions (the smallest
# eigenvalue of Σ is 5e-14 of tr Σ/C); tokens of patches stand out less with a larger ρ.
RIDGE = 1e-5
OWN_RIDGE = 1.0  # statistics of one sequence: about as many tokens as dimensions do not determine Σ (measured as well)
MAD = 1.4826  # standard deviation of a normal distribution divided by its median absolute deviation


@dataclass(frozen=True)
class TokenPursuit:
    """Settings of token pursuit: tokens whose keys leave the ellipsoid of clean keys lose attention.

    Args:
        quantile: quantile of the distances of clean tokens beyond which a token is condemned. Default: 0.999.
        strength: κ; a token at twice the threshold θ loses κ from its logits, in each such layer. Default: 20.
        prefix: number of tokens at the beginning of the sequence that are neither measured nor condemned, such as class
            and register tokens. Default: those of the model; 1 for texts, whose first token attention uses as a sink.
    """

    quantile: float = 0.999
    strength: float = 20.0
    prefix: int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.quantile) or not 0.5 <= self.quantile < 1:
            raise InputError(f"quantile is {self.quantile!r}; expected a number from 0.5 to below 1, such as 0.999")
        if not is_number(self.strength) or not 0 <= self.strength < math.inf:
            raise InputError(f"strength is {self.strength!r}; expected a number ≥ 0, such as 20")
        if self.prefix is not None:
            check_whole("prefix", self.prefix, at_least=0)

    def given(self) -> dict[str, Any]:
        """The fields as words of `--robustify`, without those that are None."""
        fields = {"preset": "tokens", "quantile": self.quantile, "strength": self.strength, "prefix": self.prefix}
        return {name: x for name, x in fields.items() if x is not None}


class TokenStatistics(NamedTuple):
    """Statistics of the keys of clean tokens in one layer. d = ‖whiten k + shift‖ is one affine map of the keys."""

    whiten: Tensor  # L⁻¹ of Σ + ρI = L Lᵀ, (C, C)
    shift: Tensor  # −L⁻¹ m, (C,)
    median: Tensor  # of the clean distances, ()
    threshold: Tensor  # θ, ()

    @property
    def mean(self) -> Tensor:
        """m, (C,)."""
        return torch.linalg.solve_triangular(self.whiten, -self.shift.unsqueeze(-1), upper=False).squeeze(-1)


class Moments:
    """Mean and covariance of a stream of tokens, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self._mean: Tensor = torch.zeros(0, dtype=torch.float64)
        self._scatter: Tensor = torch.zeros(0, 0, dtype=torch.float64)  # Σ_j (k_j − m)(k_j − m)ᵀ

    def add(self, tokens: Tensor) -> None:
        """Add tokens (M, C), by the pairwise update of Chan, Golub and LeVeque (1979)."""
        new = tokens.detach().to("cpu", torch.float64)
        if not len(new):
            return
        if not bool(new.isfinite().all()):
            raise NonFiniteError("the keys of the calibration data hold NaN or infinity; check the data and the model")
        mean = new.mean(0)
        scatter = (new - mean).mT @ (new - mean)
        if not self.count:
            self.count, self._mean, self._scatter = len(new), mean, scatter
            return
        total, step = self.count + len(new), mean - self._mean
        self._scatter = self._scatter + scatter + torch.outer(step, step) * (self.count * len(new) / total)
        self._mean = self._mean + step * (len(new) / total)
        self.count = total

    def ellipsoid(self) -> tuple[Tensor, Tensor]:
        """Whitening matrix (C, C) and shift (C,), as in `TokenStatistics`."""
        width = self._mean.shape[-1]
        if self.count <= width:
            raise InputError(
                f"calibrate has {self.count} tokens, and the keys have {width} dimensions, whose covariance they must "
                "determine; pass more examples, such as 300 images"
            )
        whiten = whitening(self._scatter / (self.count - 1), RIDGE)
        return whiten, -(whiten @ self._mean)


def whitening(covariance: Tensor, ridge: float) -> Tensor:
    """L⁻¹ of Σ + ρI = L Lᵀ with ρ = ridge · tr Σ/C, (…, C, C). Where Σ is zero, ρ is the smallest positive number."""
    scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    lower = torch.linalg.cholesky(covariance + (ridge * scale).clamp(min=torch.finfo(covariance.dtype).tiny) * eye)
    return torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)


def token_rows(keys: Tensor) -> Tensor:
    """Keys of all heads of a token as one row, (…, H, N, D) → (…, N, H·D); keys without heads are unchanged."""
    return keys.transpose(-3, -2).flatten(-2) if keys.ndim > 3 else keys


def token_distances(tokens: Tensor, whiten: Tensor, shift: Tensor) -> Tensor:
    """Mahalanobis distances d, as one matrix product. Half precision is computed in float32."""
    wide = torch.promote_types(tokens.dtype, torch.float32)
    return torch.linalg.vector_norm(F.linear(tokens.to(wide), whiten.to(wide), shift.to(wide)), dim=-1)


def own_distances(tokens: Tensor, counted: Tensor) -> Tensor:
    """Distances d from the mean and the covariance of the sequence's own tokens, of which `counted` (…, N) are used.

    They are weaker than those from clean keys: an outlier stretches the ellipsoid that it is measured with.
    """
    wide = torch.promote_types(tokens.dtype, torch.float32)
    used = counted.expand(tokens.shape[:-1]).unsqueeze(-1).to(wide)
    number = used.sum(-2, keepdim=True).clamp(min=1.0)
    rows = tokens.to(wide)
    centred = rows - (rows * used).sum(-2, keepdim=True) / number
    clean = centred * used
    whiten = whitening(clean.mT @ clean / (number - 1).clamp(min=1.0), OWN_RIDGE)
    return torch.linalg.vector_norm(centred @ whiten.mT, dim=-1)


def counted_tokens(count: int, prefix: int, real: Tensor | None, device: torch.device) -> Tensor:
    """Tokens that are measured, boolean (…, N): the real ones without the first `prefix` of them."""
    if real is None:
        return torch.arange(count, device=device) >= prefix
    return real & (real.cumsum(-1) > prefix)


def relative_distances(d: Tensor, counted: Tensor, median: Tensor | None, causal: bool = False) -> Tensor:
    """r = d / max(median_j d_j, clean median), so that an error of all tokens condemns none of them.

    `median`: clean median; None: the median of the sequence alone. In a causal model r is d / clean median, so that it
    depends on its own token only.
    """
    if causal:
        if median is None:
            raise InputError("token pursuit in a causal model needs statistics of clean keys: pass calibrate")
        return d / median.to(d.dtype)
    middle = sequence_median(d, counted)
    if median is not None:
        middle = torch.maximum(middle, median.to(d.dtype))
    return d / middle.clamp(min=torch.finfo(d.dtype).tiny)


def sequence_median(x: Tensor, counted: Tensor) -> Tensor:
    """Median over the counted tokens (…, 1), the lower of two; 1 where no token is counted."""
    found = x.masked_fill(~counted, math.nan).nanmedian(-1, keepdim=True).values
    return found.masked_fill(~counted.any(-1, keepdim=True), 1.0)


def own_threshold(r: Tensor, counted: Tensor, quantile: float) -> Tensor:
    """θ (…, 1) without clean keys: 1 + z·1.4826·median|r − 1|, with z the quantile of a normal distribution."""
    spread = MAD * sequence_median((r - 1).abs(), counted)
    return 1 + NormalDist().inv_cdf(quantile) * spread


def excess(r: Tensor, threshold: Tensor, counted: Tensor) -> Tensor:
    """r/θ − 1 of the counted tokens: positive for condemned tokens; −1 for tokens that are not counted."""
    return torch.where(counted, r / threshold.to(r.dtype) - 1, -1.0)


def sparse_rows(tokens: Tensor, mean: Tensor, r: Tensor, threshold: Tensor) -> Tensor:
    """S, the row-sparse part of the keys, (…, N, C): S_j = (1 − θ/r_j)₊ (k_j − m)."""
    kept = (1 - threshold / r.clamp(min=torch.finfo(r.dtype).tiny)).clamp(min=0)
    return kept.unsqueeze(-1) * (tokens - mean)


def fit_tokens(batches: Iterable[Tensor], quantile: float = 0.999) -> TokenStatistics:
    """Statistics of batches (B, N, C) of clean tokens, all of which are counted. The batches are read twice."""
    kept = list(batches)
    moments = Moments()
    for batch in kept:
        moments.add(batch.flatten(0, -2))
    whiten, shift = moments.ellipsoid()
    found = [token_distances(batch.double().cpu(), whiten, shift) for batch in kept]
    middles = [sequence_median(d, torch.ones_like(d, dtype=torch.bool)).expand_as(d) for d in found]
    flat, middle = (torch.cat([t.flatten() for t in each]) for each in (found, middles))
    return TokenStatistics(whiten, shift, *clean_threshold(flat, middle, quantile))


def clean_threshold(d: Tensor, middles: Tensor, quantile: float) -> tuple[Tensor, Tensor]:
    """Median of the distances d (M,) of clean tokens, and θ. `middles` (M,): median of the token's own sequence, or
    zeros for a causal model."""
    median = d.median()
    r = d / torch.maximum(middles, median).clamp(min=torch.finfo(d.dtype).tiny)
    rank = min(len(r), math.ceil(quantile * len(r)))  # torch.quantile refuses more than 2²⁴ values
    return median, r.kthvalue(rank).values
