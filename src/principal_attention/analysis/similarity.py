"""Similarity of learned values to those of Theorem 1: matched cosine and CKA, as in the published re-examination."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .axes import Numbers


class Reference:
    """Values of Theorem 1 (…, N, C), with their unit rows and kernels computed once."""

    def __init__(self, values: Tensor):
        self.unit = _unit(values)
        self.linear, self.radial = (_normalised(kernel(values)) for kernel in (_linear, _radial))

    def numbers(self, values: Tensor, *, ordered: bool = True) -> Numbers:
        """Similarities of `values` (…, N, D_v). The matched cosine ignores the order of rows, so it is left out for
        shuffled values (`ordered=False`), where it would be the same as for the original ones."""
        found = {
            "linear_cka": (_normalised(_linear(values)) * self.linear).sum((-2, -1)),
            "kernel_cka": (_normalised(_radial(values)) * self.radial).sum((-2, -1)),
        }
        return found | ({"matched_cosine": matched_cosine(_unit(values), self.unit)} if ordered else {})


def matched_cosine(ours: Tensor, theirs: Tensor) -> Tensor:
    """Largest mean cosine over one-to-one matchings of rows, (…,). Only the columns that both have are compared."""
    width = min(ours.shape[-1], theirs.shape[-1])
    cosines = ours[..., :width] @ theirs[..., :width].mT
    flat = cosines.flatten(0, -3).cpu().numpy()
    best = [float(each[linear_sum_assignment(each, maximize=True)].mean()) for each in flat]
    return torch.tensor(best, dtype=ours.dtype, device=ours.device).reshape(cosines.shape[:-2])


def _unit(values: Tensor) -> Tensor:
    return values / values.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)


def _linear(values: Tensor) -> Tensor:
    return values @ values.mT


def _radial(values: Tensor) -> Tensor:
    """Gaussian kernel exp(−‖x − y‖²/2σ²) of the rows, where σ² is the median squared distance."""
    distance = torch.cdist(values, values).square()
    n = values.shape[-2]
    apart = distance[..., *torch.triu_indices(n, n, 1)]
    width = apart.median(-1).values[..., None, None] if n > 1 else distance + 1
    return (-0.5 * distance / width.clamp(min=torch.finfo(values.dtype).tiny)).exp()


def _normalised(kernel: Tensor) -> Tensor:
    """Kernel centred and divided by its Frobenius norm; the sum of the product of two of them is the CKA."""
    kernel = kernel - kernel.mean(-1, keepdim=True)
    kernel = kernel - kernel.mean(-2, keepdim=True)
    return kernel / kernel.norm(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(kernel.dtype).tiny)
