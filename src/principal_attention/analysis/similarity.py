"""The measures of the published re-examination: learned values beside those of Theorem 1, row by row."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .axes import Numbers


class Reference:
    """The theorem's values (…, N, C), with what is compared against them computed once."""

    def __init__(self, values: Tensor):
        self.unit = _unit(values)
        self.linear, self.radial = (_normalised(kernel(values)) for kernel in (_linear, _radial))

    def numbers(self, values: Tensor, *, ordered: bool = True) -> Numbers:
        """Matched rows forget their order, so values that have lost it are told nothing by the matched cosine."""
        found = {
            "linear_cka": (_normalised(_linear(values)) * self.linear).sum((-2, -1)),
            "kernel_cka": (_normalised(_radial(values)) * self.radial).sum((-2, -1)),
        }
        return found | ({"matched_cosine": matched_cosine(_unit(values), self.unit)} if ordered else {})


def matched_cosine(ours: Tensor, theirs: Tensor) -> Tensor:
    """The mean cosine of rows matched one to one so that it is largest. Rows of other widths share their first."""
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
    """exp(−‖x − y‖²/2σ²), σ² the median squared distance."""
    distance = torch.cdist(values, values).square()
    n = values.shape[-2]
    apart = distance[..., *torch.triu_indices(n, n, 1)]
    width = apart.median(-1).values[..., None, None] if n > 1 else distance + 1
    return (-0.5 * distance / width.clamp(min=torch.finfo(values.dtype).tiny)).exp()


def _normalised(kernel: Tensor) -> Tensor:
    """Centred, and of Frobenius norm one, so that a product's sum is the CKA."""
    kernel = kernel - kernel.mean(-1, keepdim=True)
    kernel = kernel - kernel.mean(-2, keepdim=True)
    return kernel / kernel.norm(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(kernel.dtype).tiny)
