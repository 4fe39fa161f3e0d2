"""Convex splits of a matrix into low rank plus errors: Principal Component Pursuit and Outlier Pursuit.

    minimise ‖L‖₊ + lam·‖S‖ subject to L + S = M

‖S‖ is ‖S‖₁ in Principal Component Pursuit (Candès, Li, Ma and Wright, JACM 2011), for errors of single entries, and
‖S‖₂,₁, the sum of the rows' norms, in Outlier Pursuit (Xu, Caramanis and Sanghavi, IEEE Trans. Inf. Theory 2012), for
errors of whole rows. Both are solved by alternating directions: S ← shrink(M − L + Y/mu, lam/mu) with the proximal
step of ‖S‖, L ← D_{1/mu}(M − S + Y/mu), Y ← Y + mu (M − L − S). Candès et al. print −Y/mu in the update of L, and
D_mu for D_{1/mu}, which diverges.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import ConvergenceWarning, DtypeError, InputError, NonFiniteError
from .sdpa import check_whole


class PCPResult(NamedTuple):
    """Result of `principal_component_pursuit` and `outlier_pursuit`; leading dimensions are those of the input."""

    low_rank: Tensor  # L, (…, n₁, n₂)
    sparse: Tensor  # S, (…, n₁, n₂): few entries or few rows that are not zero
    iterations: Tensor  # iterations done, (…,)
    residual: Tensor  # ‖M − L − S‖/‖M‖ in the Frobenius norm, (…,)
    converged: Tensor  # whether the tolerance was reached, (…,) boolean


# mu is multiplied by _GROWTH where ‖M − L − S‖ exceeds _BALANCE times the last change of L, and divided by it in the
# opposite case. Both were measured on Candès et al.'s Table 1 with errors scaled by 0.01 to 10⁴, and on noisy digits.
_BALANCE, _GROWTH = 2.0, 1.2


def principal_component_pursuit(
    m: Tensor, *, lam: float | None = None, mu: float | None = None, tol: float = 1e-7, max_iter: int = 1000
) -> PCPResult:
    """Split each matrix of m into a low-rank and a sparse part; solved in float64, without gradients.

    Args:
        m: matrices (…, n₁, n₂), floating-point and finite.
        lam: weight of the sparse part. Default: 1/√max(n₁, n₂), as in the paper.
        mu: fixed penalty. Default: start at the paper's n₁n₂/(4‖M‖₁) and adapt it in the first half of
            `max_iter`; a fixed mu needs more iterations the larger the errors are compared with L.
        tol: tolerance. The iteration stops when ‖M − L − S‖ and the last change of L are below tol times the
            smaller of ‖L‖ and ‖S‖ (relative to ‖M‖, L would not matter where the errors are much larger).
        max_iter: largest number of iterations; reaching it raises a `ConvergenceWarning`.
    """
    _check(m, lam, mu, tol, max_iter)
    lam = 1 / math.sqrt(max(m.shape[-2:])) if lam is None else lam
    return _split(m, shrink_entries, shrink_entries, lam, mu, tol, max_iter, "principal component pursuit")


def outlier_pursuit(
    m: Tensor, *, lam: float | None = None, mu: float | None = None, tol: float = 1e-7, max_iter: int = 1000
) -> PCPResult:
    """Split each matrix of m into a low-rank part and a part with few rows that are not zero, the outliers.

    One row per sample; the paper has one column per sample, so M there is the transpose of m. L is 0 in the rows of
    outliers, or their best fit in the row space of the other rows; the outliers are the rows of `sparse` that are
    not 0. Solved in float64, without gradients.

    Args:
        m: matrices (…, n₁, n₂), floating-point and finite.
        lam: weight of the outliers; no row is an outlier for lam ≥ 1. The paper's 3/(7√(γn₁)) needs the share γ of
            outliers, at most 9/(121·μ·rank) for rows of incoherence μ, and then bears any outliers, also equal
            ones. Default: 1/√log n₁ (Zhang, Lin, Zhang and Chang, AAAI 2015), which needs neither the share nor the
            rank and bears more of both, if no direction is shared by more than log n₁ outliers.
        mu, tol, max_iter: as in `principal_component_pursuit`.
    """
    _check(m, lam, mu, tol, max_iter)
    lam = 1 / math.sqrt(math.log(max(m.shape[-2], 2))) if lam is None else lam
    return _split(m, partial(shrink_vectors, dim=-1), partial(shrink_vectors, dim=-2), lam, mu, tol, max_iter,
                  "outlier pursuit")  # fmt: skip


def _check(m: Tensor, lam: float | None, mu: float | None, tol: float, max_iter: int) -> None:
    if not isinstance(m, Tensor):
        raise DtypeError(f"m is a {type(m).__name__}; expected a torch.Tensor (convert arrays with torch.from_numpy)")
    if m.ndim < 2 or 0 in m.shape[-2:]:
        raise InputError(f"m has shape {tuple(m.shape)}; expected (…, n₁, n₂) with at least one row and column")
    if not m.is_floating_point():
        raise DtypeError(f"m has dtype {m.dtype}; expected a floating-point dtype")
    if not torch.isfinite(m).all():
        raise NonFiniteError("m holds NaN or infinity; fill or remove those entries first")
    for name, value in (("lam", lam), ("mu", mu), ("tol", tol)):
        if value is not None and not (value > 0 or (name == "lam" and value == 0)):
            raise InputError(f"{name} is {value}; expected a number {'from' if name == 'lam' else 'above'} 0")
    if mu is not None and mu == math.inf:
        raise InputError("mu is infinite; expected a finite penalty, or None to start at n₁n₂/(4‖M‖₁)")
    check_whole("max_iter", max_iter)


Shrink = Callable[[Tensor, Tensor], Tensor]  # proximal step of a norm: matrices (B, n₁, n₂), thresholds (B, 1, 1)


def _split(
    m: Tensor, shrink: Shrink, shrink_transposed: Shrink, lam: float, mu: float | None, tol: float, max_iter: int,
    name: str,
) -> PCPResult:  # fmt: skip
    """The solver on checked input. `shrink_transposed`: the proximal step for transposed matrices."""
    m = m.detach()
    n1, n2 = m.shape[-2:]
    flat = m.reshape(-1, n1, n2)
    size = flat.abs().amax((-2, -1), keepdim=True).double()
    scaled = flat.double() / torch.where(size > 0, size, 1.0)  # squares of singular values must not overflow
    if n1 < n2:
        scaled = scaled.mT  # makes the Gram matrix in shrink_singular_values the smaller one
        shrink = shrink_transposed
    mu_ = None if mu is None else mu * size
    low_rank, sparse, iterations, residual, converged = _solve(scaled, shrink, lam, mu_, tol, max_iter)
    if n1 < n2:
        low_rank, sparse = low_rank.mT, sparse.mT
    if not converged.all():
        warnings.warn(
            f"{name} did not converge: it stopped after {max_iter} iterations at a residual of "
            f"{residual.max().item():.1e}; raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    lead = m.shape[:-2]
    return PCPResult(
        (low_rank * size).to(m.dtype).reshape(m.shape),
        (sparse * size).to(m.dtype).reshape(m.shape),
        iterations.reshape(lead),
        residual.reshape(lead),
        converged.reshape(lead),
    )


@torch.no_grad()
def _solve(
    m: Tensor, shrink: Shrink, lam: float, mu: Tensor | None, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Solve all matrices together; a converged matrix is removed, so each result is that of solving it by itself."""
    count = m.shape[0]
    low_rank, sparse = torch.zeros_like(m), torch.zeros_like(m)
    iterations = torch.zeros(count, dtype=torch.int64, device=m.device)
    residual = torch.zeros(count, dtype=m.dtype, device=m.device)
    norm = _norm(m)
    converged = norm == 0
    active = (~converged).nonzero().squeeze(-1)
    balance = mu is None
    if mu is None:
        mu = m.shape[-2] * m.shape[-1] / (4 * m.abs().sum((-2, -1), keepdim=True))
    m, mu, norm = m[active], mu[active], norm[active]
    low, dual = torch.zeros_like(m), torch.zeros_like(m)
    for i in range(1, max_iter + 1):
        if not len(active):
            break
        sp = shrink(m - low + dual / mu, lam / mu)
        new = shrink_singular_values(m - sp + dual / mu, 1 / mu.squeeze(-1))
        gap = m - new - sp
        dual = dual + mu * gap
        primal, moved = _norm(gap), _norm(new - low)
        low = new
        done = torch.maximum(primal, moved) <= tol * _yardstick(low, sp, norm)
        finished = done if i < max_iter else torch.ones_like(done)
        if finished.any():
            at = active[finished]
            low_rank[at], sparse[at], iterations[at] = low[finished], sp[finished], i
            residual[at], converged[at] = (primal / norm)[finished], done[finished]
            left = ~finished
            active, m, mu, norm, low, dual, primal, moved = (
                t[left] for t in (active, m, mu, norm, low, dual, primal, moved)
            )
        if balance and i < max_iter // 2:  # fixed afterwards, as the convergence proof requires
            ratio = torch.ones_like(primal)
            ratio[primal > _BALANCE * moved] = _GROWTH
            ratio[moved > _BALANCE * primal] = 1 / _GROWTH
            mu = mu * ratio[:, None, None]
    return low_rank, sparse, iterations, residual, converged


def shrink_entries(x: Tensor, threshold: Tensor) -> Tensor:
    """Proximal step of ‖·‖₁: move each entry towards zero by the threshold."""
    return x - x.clamp(-threshold, threshold)


def shrink_vectors(x: Tensor, threshold: Tensor, dim: int) -> Tensor:
    """Proximal step of ‖·‖₂,₁: shorten each vector along `dim` by the threshold, and set shorter ones to zero."""
    length = x.norm(dim=dim, keepdim=True)
    return x * torch.where(length > threshold, 1 - threshold / length, 0.0)


def shrink_singular_values(x: Tensor, tau: Tensor) -> Tensor:
    """D_tau(x): subtract tau (…, 1) from the singular values of a square or tall x, and set negative ones to zero.

    Uses the eigenvectors of the Gram matrix xᵀx, at a third of the cost of an SVD or less. Squaring loses
    singular values below 1e-8 of the largest.
    """
    values, vectors = torch.linalg.eigh(x.mT @ x)
    singular = values.clamp(min=0).sqrt()
    factor = torch.where(singular > tau, 1 - tau / singular.clamp(min=torch.finfo(x.dtype).tiny), 0.0)
    kept = int((factor > 0).sum(-1).max())  # eigenvalues ascend: the large ones are the last columns
    if kept == 0:
        return torch.zeros_like(x)
    vectors, factor = vectors[..., -kept:], factor[..., -kept:]
    return (x @ vectors * factor.unsqueeze(-2)) @ vectors.mT


def _norm(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=-1)


def _yardstick(low: Tensor, sparse: Tensor, norm: Tensor) -> Tensor:
    """The smaller of ‖L‖ and ‖S‖, but at least 1e-7·‖M‖. S = 0 can be the solution, so it is ignored then; L = 0 may
    be temporary while huge errors are removed, so ‖L‖ = 0 demands a residual of rounding size."""
    low_rank, errors, floor = _norm(low), _norm(sparse), 1e-7 * norm
    smaller = torch.where(errors > 0, torch.minimum(low_rank, errors), low_rank)
    return torch.maximum(smaller, floor)
