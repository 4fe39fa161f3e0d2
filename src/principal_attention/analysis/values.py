"""Comparison of a head's values with those of Theorem 1: as coefficients, as a subspace, and by the outputs."""

import math

import torch
from torch import Tensor

from .axes import Axes, Numbers

RANKS = (1, 2, 4, 8, 16, 32, 64)  # numbers of leading axes that `overlap_RANK` is measured for


def coefficients(axes: Axes, values: Tensor) -> tuple[Tensor, Tensor]:
    """Â = (I − 1_N) G⁻¹V with columns of norm one, and the share of ‖G⁻¹V‖² that (I − 1_N) removes.

    The paper writes (I − 1_N)⁻¹, but I − 1_N is a projector without an inverse: no coefficients produce the part of V
    outside its range.
    """
    log_g = axes.spectrum.log_g
    weighted = (log_g - log_g.amax(-1, keepdim=True)).exp().unsqueeze(-1) * values
    mean = weighted.mean(-2, keepdim=True)
    lost = axes.tokens * mean.square().sum((-2, -1)) / _positive(weighted.square().sum((-2, -1)))
    centred = weighted - mean
    return centred / _positive(centred.norm(dim=-2, keepdim=True)), lost


def measure_coefficients(axes: Axes, values: Tensor) -> tuple[Numbers, Tensor]:
    """Metrics of whether the columns of Â are eigenvectors and span the leading eigenvectors; and the columns."""
    columns, lost = coefficients(axes, values)
    along = axes.spectrum.vectors.mT @ columns  # in the basis of eigenvectors, where the Gram matrix is diagonal
    eigenvalues = axes.relative.unsqueeze(-1)
    image = eigenvalues * along
    rayleigh = (along * image).sum(-2, keepdim=True) / _positive(along.square().sum(-2, keepdim=True))
    size = image.norm(dim=-2)
    residual = (image - rayleigh * along).norm(dim=-2) / _positive(size)
    there = size > 0  # columns that the Gram matrix maps to zero are ignored; if all are, the residual is 1
    residual = torch.where(there.any(-1), (residual * there).sum(-1) / there.sum(-1).clamp(min=1), 1.0)
    basis = orthonormal(along)
    mapped = eigenvalues * basis
    inside = basis @ (basis.mT @ mapped)
    found = {
        "infeasible_share": lost,
        "rayleigh_residual": residual,
        "subspace_residual": (mapped - inside).norm(dim=(-2, -1)) / _positive(mapped.norm(dim=(-2, -1))),
    }
    return found | _against_leading(axes, basis), columns


def _against_leading(axes: Axes, basis: Tensor) -> Numbers:
    """Principal angles between span(Â) and the leading eigenvectors; `overlap` is their mean squared cosine."""
    top = basis[..., : axes.count, :] * axes.kept.unsqueeze(-1)
    there = axes.kept.sum(-1).clamp(min=1)
    cosines = torch.linalg.eigvalsh(top @ top.mT).clamp(0, 1).flip(-1).sqrt()  # axes beyond the rank come last
    degrees = cosines.arccos() * (180 / math.pi)
    held = top.square().sum(-1)  # squared norm of each eigenvector's projection on the span
    found = {
        "overlap": held.sum(-1) / there,
        "angle_smallest": degrees[..., 0],
        "angle_median": degrees.gather(-1, (there.unsqueeze(-1) - 1) // 2).squeeze(-1),
    }
    for rank in RANKS:
        if rank <= axes.count:
            found[f"overlap_{rank}"] = held[..., :rank].sum(-1) / there.clamp(max=rank)
    return found


def measure_outputs(axes: Axes, values: Tensor) -> Numbers:
    """Metrics of whether the outputs h are the projections h* of kernel PCA, as they are or after the best linear map.

    Any linear map is allowed, since the layer's output projection could contain it.
    """
    outputs = axes.attention @ values
    feature = axes.log_feature.exp().mean(-1)
    size = outputs.square().sum(-1)
    count = axes.count
    across = outputs[..., :count] * axes.outputs[..., : outputs.shape[-1]]
    explained = (orthonormal(outputs).mT @ axes.outputs).square().sum(-2)  # per axis
    whole = axes.outputs.square().sum(-2)
    shares = explained / _positive(whole)
    rows = outputs.shape[-2]
    found = {
        "h_norm": size.mean(-1),
        "j_proj": feature - size.mean(-1),
        "violation_share": (size.log() > axes.log_feature).double().mean(-1),
        "residual": feature - 2 * across.sum(-1).mean(-1) + size.mean(-1),
    }
    if rows > 1:  # a single row is always explained exactly
        found |= {
            "residual_best": feature - explained.sum(-1) / rows,
            "explained_share": shares.sum(-1) / axes.kept.sum(-1).clamp(min=1),
        }
    return found


def orthonormal(columns: Tensor) -> Tensor:
    """Orthonormal basis of the span of `columns`, in the same shape; has zero columns if `columns` are dependent."""
    unit = columns / _positive(columns.norm(dim=-2, keepdim=True))
    basis, triangle = torch.linalg.qr(unit)
    tolerance = torch.finfo(columns.dtype).eps * max(columns.shape[-2:])
    short = (triangle.diagonal(dim1=-2, dim2=-1).abs() <= tolerance).any(-1)
    if short.any():  # QR returns an arbitrary direction for a dependent column; these rare matrices use the SVD
        left, sizes, _ = torch.linalg.svd(unit[short], full_matrices=False)
        basis[short] = left * (sizes > tolerance * sizes[..., :1]).unsqueeze(-2)
    return basis


def _positive(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).tiny)
