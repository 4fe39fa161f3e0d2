"""Quantities that depend only on a head's queries and keys: spectrum, principal axes, and the values of Theorem 1."""

import torch
from torch import Tensor

from ..kernel_pca import gram_spectrum, theorem_values

Numbers = dict[str, Tensor]  # by metric, one number per head, (…,)


class Axes:
    """Kernel PCA of the keys (…, N, D) with `components` axes, and projections of the queries (…, N, D); in float64."""

    def __init__(self, queries: Tensor, keys: Tensor, components: int, scale: float):
        queries, keys = queries.double(), keys.double()
        self.tokens = keys.shape[-2]
        self.spectrum = gram_spectrum(keys, scale)
        # There are at most as many axes as the numerical rank of the Gram matrix; `kept` is True for these axes.
        self.count = min(components, max(1, self.tokens - 1))
        self.kept = torch.arange(self.count, device=keys.device) < self.spectrum.rank.unsqueeze(-1)
        _, self.values = theorem_values(self.spectrum, self.count)
        logits = queries @ keys.mT * scale
        log_g = logits.logsumexp(-1)
        self.attention = (logits - log_g.unsqueeze(-1)).exp()
        self.outputs = self.attention @ self.values  # φ(q)·u_d by Theorem 1
        self.log_feature = queries.square().sum(-1) * scale - 2 * log_g  # log ‖φ(q)‖²

    @property
    def relative(self) -> Tensor:
        """Eigenvalues divided by exp(`spectrum.log_scale`), (…, N); negative ones, due to rounding, are set to zero."""
        return self.spectrum.values.clamp(min=0)

    def numbers(self) -> Numbers:
        """Metrics of the spectrum of the centred Gram matrix (not divided by N), of its trace and of ‖φ(q)‖²."""
        spectrum, relative = self.spectrum, self.relative
        size = spectrum.log_scale.squeeze(-1).exp()
        shares = relative / relative.sum(-1, keepdim=True).clamp(min=torch.finfo(relative.dtype).tiny)
        entropy = -torch.xlogy(shares, shares).sum(-1)
        feature = self.log_feature.exp()
        return {
            "lambda_max": relative[..., 0] * size,
            "lambda_mean": relative.mean(-1) * size,
            "lambda_median": relative.median(-1).values * size,
            "effective_rank": entropy.exp(),
            "trace": relative.sum(-1) * size,
            "trace_bound": (-spectrum.log_g).exp().sum(-1),  # tr K_φ ≤ Σⱼ 1/g(kⱼ) ≤ N
            "phi_norm": feature.mean(-1),
            "j_star": (feature - self.outputs.square().sum(-1)).mean(-1),
        }
