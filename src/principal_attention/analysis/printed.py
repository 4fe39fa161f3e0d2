"""The paper's γ differences as printed, and its projection loss as the authors' code computes it."""

import torch
from torch import Tensor

from .axes import Axes, Numbers


def gamma_differences(axes: Axes, columns: Tensor) -> tuple[Numbers, Tensor, Tensor]:
    """Differences between the entries of γ = K̃_φ â_d / (N â_d) (elementwise), which is constant for an eigenvector.

    Returns:
        Metrics per head, then the mean and the standard deviation of |γᵢ − γⱼ| over the pairs i ≠ j for each
        component, both (…, D_v), which the paper plots.
    """
    spectrum, n = axes.spectrum, columns.shape[-2]
    along = axes.relative.unsqueeze(-1) * (spectrum.vectors.mT @ columns)
    gamma = spectrum.vectors @ along * spectrum.log_scale.unsqueeze(-1).exp() / (n * columns)
    gamma = torch.where(columns == 0, 0.0, gamma)  # 0/0 is undefined
    mean, deviation = pair_differences(gamma)
    mixed = gamma[..., torch.randperm(n, generator=torch.Generator().manual_seed(0)), :]
    apart = torch.cat([(mixed - mixed.roll(shift, dims=-2)).abs() for shift in range(1, 5)], -2)  # 4N random pairs
    size = (axes.relative[..., 0] * spectrum.log_scale.squeeze(-1).exp() / n).clamp(min=torch.finfo(gamma.dtype).tiny)
    median = apart.median(-2).values.mean(-1)
    found = {
        "gamma_mean": mean.mean(-1),
        "gamma_std": deviation.mean(-1),
        "gamma_median": median,
        "gamma_relative": median / size,  # relative to lambda_max / N, the largest γ of an eigenvector
    }
    return found, mean, deviation


def pair_differences(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of |xᵢ − xⱼ| over all pairs along the second last dimension."""
    n = x.shape[-2]
    if n < 2:
        return torch.zeros_like(x[..., 0, :]), torch.zeros_like(x[..., 0, :])
    ordered = x.sort(-2).values
    ordered = ordered - ordered[..., n // 2 : n // 2 + 1, :]
    place = torch.arange(n, device=x.device, dtype=x.dtype) * 2 - (n - 1)
    pairs = n * (n - 1) / 2
    mean = (place.unsqueeze(-1) * ordered).sum(-2) / pairs
    square = (n * ordered.square().sum(-2) - ordered.sum(-2).square()) / pairs
    return mean, (square - mean.square()).clamp(min=0).sqrt()


def authors_projection_loss(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """J_proj as the authors' code computes it, (…,): with queries and keys standardised over their features, scaled
    logits in the attention, and unscaled logits in ‖φ(q)‖². Their figure shows the logarithm of its mean over batch,
    heads and rows."""
    q, k = (_standardised(x.double()) for x in (queries, keys))
    logits = q @ k.mT
    shares = (logits * scale).log_softmax(-1)
    log_feature = q.square().sum(-1) - 2 * logits[..., 0] + 2 * shares[..., 0]
    size = (shares.exp() @ values.double()).square().sum(-1)
    return (log_feature.exp() - size).mean(-1)


def _standardised(x: Tensor) -> Tensor:
    deviation = x.std(-1, keepdim=True) if x.shape[-1] > 1 else torch.ones_like(x)
    return (x - x.mean(-1, keepdim=True)) / deviation.clamp(min=torch.finfo(x.dtype).tiny)
