"""Kernel PCA of a set of keys with the kernel of attention (the paper's Theorem 1).

    k(x, y) = exp(xᵀy/√D)      g(x) = Σⱼ k(x, kⱼ)      k_φ(x, y) = k(x, y) / (g(x) g(y))

The kernel spans hundreds of orders of magnitude, so it is computed as a logarithm:
log k_φ(x, y) = xᵀy/√D − log g(x) − log g(y). The Gram matrix is divided by its largest entry, exponentiated
and solved in float64; the logarithm of that entry is returned with the solution.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import InputError, NonFiniteError, RankError
from .sdpa import check_tensors, check_whole


@dataclass(frozen=True)
class Spectrum:
    """Eigendecomposition of the centred Gram matrix; its eigenvalues are `values`·exp(`log_scale`), descending."""

    values: Tensor  # (…, N)
    vectors: Tensor  # (…, N, N), eigenvectors in columns
    log_scale: Tensor  # (…, 1)
    log_g: Tensor  # (…, N): log g of each key
    rank: Tensor  # (…,) integers: numerical rank
    finite: Tensor  # (…,) boolean: whether all logits are finite; where False, the other fields are meaningless

    def log_values(self) -> Tensor:
        return self.values.clamp(min=0).log() + self.log_scale


def log_kernel_sum(x: Tensor, keys: Tensor, scale: float, key_mask: Tensor | None = None) -> Tensor:
    """log g(x) = log Σⱼ exp(xᵀkⱼ·scale), (…, rows); masked keys are left out of the sum."""
    logits = x @ keys.mT * scale
    if key_mask is not None:
        logits = logits.masked_fill(~key_mask.unsqueeze(-2), -math.inf)
    return logits.logsumexp(-1)


def gram_spectrum(keys: Tensor, scale: float) -> Spectrum:
    """Eigenvalues and eigenvectors of (I − 1_N) K_φ (I − 1_N); `keys` (…, N, D) are float64."""
    n = keys.shape[-2]
    logits = keys @ keys.mT * scale
    log_g = logits.logsumexp(-1)
    log_gram = logits - log_g.unsqueeze(-1) - log_g.unsqueeze(-2)
    finite = torch.isfinite(log_gram).all(-1).all(-1)
    log_gram = torch.where(finite[..., None, None], log_gram, 0.0)  # eigh fails for the whole batch otherwise
    log_scale = log_gram.amax((-2, -1))
    gram = (log_gram - log_scale[..., None, None]).exp()
    gram = gram - gram.mean(-1, keepdim=True)
    gram = gram - gram.mean(-2, keepdim=True)
    values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
    values, vectors = values.flip(-1), vectors.flip(-1)
    # Signs as in scikit-learn's svd_flip: the entry of each vector with the largest magnitude is positive.
    largest = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
    vectors = vectors * torch.where(largest < 0, -1.0, 1.0).to(vectors)
    # Rounding of the logits is a relative error of the entries, so eigenvalues below `blur` are noise.
    blur = torch.finfo(keys.dtype).eps * logits.abs().amax((-2, -1)).clamp(min=n)
    top = values[..., :1].clamp(min=0)
    # A Gram matrix of equal rows (equal keys, or one key) centres to rounding noise around zero.
    real = (values > blur.unsqueeze(-1) * top) & (top > blur.unsqueeze(-1))
    return Spectrum(values, vectors, log_scale.unsqueeze(-1), log_g, real.sum(-1), finite)


def theorem_values(spectrum: Spectrum, n_components: int) -> tuple[Tensor, Tensor]:
    """Coefficients a_d and values V = G·A, G = diag(1/g), of Theorem 1: (…, N, n_components), zero beyond the rank.

    ‖a_d‖² = 1/(N·lambda_d), the inverse of the Gram matrix's eigenvalue, gives each axis u_d unit length. The
    entries of an eigenvector sum to zero, so the theorem's mean term −(1/N)Σ a_dj'/g(k_j) vanishes.
    """
    kept = torch.arange(n_components, device=spectrum.rank.device) < spectrum.rank.unsqueeze(-1)
    unit = spectrum.vectors[..., :n_components]
    # The inner where keeps log, exp and their gradients finite in the places that the outer where sets to zero.
    size = torch.where(kept, spectrum.values[..., :n_components], 1.0).log() + spectrum.log_scale
    zero = (unit == 0) | ~kept.unsqueeze(-2)
    exponent = torch.where(zero, 0.0, -0.5 * size.unsqueeze(-2))
    coefficients = torch.where(zero, 0.0, unit * exponent.exp())
    values = torch.where(zero, 0.0, unit * (exponent - torch.where(zero, 0.0, spectrum.log_g.unsqueeze(-1))).exp())
    lost = ~spectrum.finite[..., None, None]
    return coefficients.masked_fill(lost, math.nan), values.masked_fill(lost, math.nan)


class KernelPCA:
    """Kernel PCA of keys (…, N, D) with the kernel of attention, batched over leading dimensions.

    Args:
        n_components: number of principal axes. Default: the smallest numerical rank in the batch. A number
            above N − 1 or above that rank raises `RankError`.
        scale: factor of the logits xᵀy. Default: 1/√D.

    Attributes, set by `fit`, in float64:
        eigenvalues_: eigenvalues of the centred Gram matrix, descending, (…, n_components).
        coefficients_: a_d in columns, (…, N, n_components); the axes u_d = Σⱼ a_dj φ̃(kⱼ) are unit vectors.
        values_: V of Theorem 1, (…, N, n_components); softmax attention with these values projects φ(q) on the axes.
        rank_: numerical rank of the centred Gram matrix, (…,).
        n_components_: number of axes kept.
    """

    def __init__(self, n_components: int | None = None, *, scale: float | None = None):
        self.n_components = n_components
        self.scale = scale

    def fit(self, keys: Tensor) -> "KernelPCA":
        """Compute the principal axes of `keys` (…, N, D), and return self."""
        check_tensors(keys)
        n, wanted = keys.shape[-2], self.n_components
        if not keys.numel():
            raise InputError(f"keys have shape {tuple(keys.shape)}; expected at least one key")
        if wanted is not None:
            check_whole("n_components", wanted)
        if not torch.isfinite(keys).all():
            raise NonFiniteError("keys hold NaN or infinity; kernel PCA needs finite keys")
        if wanted is not None and wanted > n - 1:
            raise RankError(
                f"n_components is {wanted}, but {n} centred keys span at most {n - 1} axes; lower n_components", n - 1
            )
        self.keys_ = keys.double()
        self.scale_ = keys.shape[-1] ** -0.5 if self.scale is None else self.scale
        self._spectrum = gram_spectrum(self.keys_, self.scale_)
        if not self._spectrum.finite.all():
            raise NonFiniteError("the keys are so large that kᵀk/√D exceeds float64; scale them down")
        self.rank_ = self._spectrum.rank
        rank = int(self.rank_.min())
        if rank == 0:
            raise RankError("the keys are all equal, so they have no principal axis (numerical rank 0)", 0)
        wanted = rank if wanted is None else wanted
        if wanted > rank:
            raise RankError(
                f"n_components is {wanted}, but the centred Gram matrix has numerical rank {rank} "
                f"(the smallest in the batch); use n_components={rank} or fewer, or smaller or more varied keys",
                rank,
            )
        self.n_components_ = wanted
        self.eigenvalues_ = self._spectrum.log_values()[..., :wanted].exp()
        self.coefficients_, self.values_ = theorem_values(self._spectrum, wanted)
        return self

    def transform(self, queries: Tensor, *, centered: bool = False) -> Tensor:
        """Project queries (…, rows, D) on the principal axes: φ(q)·u_d, (…, rows, n_components).

        `centered=True` first subtracts the mean of the keys' features from φ(q), as scikit-learn does, which
        subtracts the same row from every projection. Default: False, as in Theorem 1.
        """
        projected = self._project(self._checked(queries))
        if centered:
            projected = projected - self._project(self.keys_).mean(-2, keepdim=True)
        return projected

    def projection_error(self, queries: Tensor) -> Tensor:
        """The paper's J_proj, (…,): the mean over queries of ‖φ(q)‖² − ‖h‖². It is never negative for projections h."""
        queries = self._checked(queries)
        log_g = log_kernel_sum(queries, self.keys_, self.scale_)
        feature_norm = (queries.square().sum(-1) * self.scale_ - 2 * log_g).exp()
        return (feature_norm - self.transform(queries).square().sum(-1)).mean(-1)

    def _checked(self, queries: Tensor) -> Tensor:
        if not hasattr(self, "keys_"):
            raise InputError("this KernelPCA is not fitted; call fit first")
        check_tensors(queries)
        check_tensors(self.keys_, q=queries.double())
        return queries.double()

    def _project(self, x: Tensor) -> Tensor:
        """Σⱼ a_dj k_φ(x, kⱼ), computed from the kernel, with the norm of a_d inside the exponent.

        The exponents of a row are shifted by the largest one, so that neither factor overflows by itself.
        """
        spectrum, d = self._spectrum, self.n_components_
        log_g = log_kernel_sum(x, self.keys_, self.scale_)
        log_k = x @ self.keys_.mT * self.scale_ - log_g.unsqueeze(-1) - spectrum.log_g.unsqueeze(-2)
        shift = log_k.amax(-1, keepdim=True)
        half = 0.5 * spectrum.log_values()[..., :d].unsqueeze(-2)
        sums = (log_k - shift).exp() @ spectrum.vectors[..., :d]
        return torch.where(sums == 0, 0.0, sums * (shift - half).exp())
