"""Principal Component Pursuit (Candès, Li, Ma and Wright, JACM 2011): a matrix into low rank plus sparse.

    minimise ‖L‖₊ + lam·‖S‖₁ subject to L + S = M

by the alternating directions S ← shrink(M − L + Y/mu, lam/mu), L ← D_{1/mu}(M − S + Y/mu),
Y ← Y + mu (M − L − S). The paper prints −Y/mu in the second and D_mu for D_{1/mu}: that diverges.
"""

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import ConvergenceWarning, DtypeError, InputError, NonFiniteError
from .sdpa import check_whole


class PCPResult(NamedTuple):
    low_rank: Tensor  # (…, n₁, n₂)
    sparse: Tensor  # (…, n₁, n₂)
    iterations: Tensor  # (…,)
    residual: Tensor  # (…,): ‖M − L − S‖/‖M‖, Frobenius
    converged: Tensor  # (…,) boolean


# mu grows where the constraint lags behind the movement of L by the first factor, and shrinks in the opposite
# case. Measured on Candès et al.'s Table 1 with errors 0.01 to 10⁴ times theirs, and on contaminated digits.
_BALANCE, _GROWTH = 2.0, 1.2


def principal_component_pursuit(
    m: Tensor, *, lam: float | None = None, mu: float | None = None, tol: float = 1e-7, max_iter: int = 1000
) -> PCPResult:
    """Split each matrix of m (…, n₁, n₂) into a low-rank and a sparse part; solved in float64, no gradients.

    Args:
        lam: weight of the sparse part; 1/√max(n₁, n₂) as in the paper by default.
        mu: a fixed penalty. By default it starts at the paper's n₁n₂/(4‖M‖₁) and is balanced in the first
            half of `max_iter`: a fixed one needs ever more iterations as the errors grow larger than L.
        tol: stops when ‖M − L − S‖ and the last move of L are below tol times the smaller of ‖L‖ and ‖S‖
            (of ‖M‖ would be blind to L where the errors are much larger).
    """
    if not isinstance(m, Tensor):
        raise DtypeError(f"m is a {type(m).__name__}; expected a torch.Tensor (torch.from_numpy makes one)")
    if m.ndim < 2 or 0 in m.shape[-2:]:
        raise InputError(f"m has shape {tuple(m.shape)}; expected (…, n₁, n₂) with at least one row and column")
    if not m.is_floating_point():
        raise DtypeError(f"m has dtype {m.dtype}; expected a floating-point one")
    if not torch.isfinite(m).all():
        raise NonFiniteError("m holds NaN or infinity; fill or drop those entries first")
    for name, value in (("lam", lam), ("mu", mu), ("tol", tol)):
        if value is not None and not (value > 0 or (name == "lam" and value == 0)):
            raise InputError(f"{name} is {value}; expected a positive number")
    if mu is not None and mu == math.inf:
        raise InputError("mu is infinite; expected a finite penalty, or None for the paper's")
    check_whole("max_iter", max_iter)

    m = m.detach()
    n1, n2 = m.shape[-2:]
    lam = 1 / math.sqrt(max(n1, n2)) if lam is None else lam
    flat = m.reshape(-1, n1, n2)
    size = flat.abs().amax((-2, -1), keepdim=True).double()
    scaled = flat.double() / torch.where(size > 0, size, 1.0)  # squares of singular values must not overflow
    if n1 < n2:
        scaled = scaled.mT  # the Gram matrix below is of the shorter side
    mu_ = None if mu is None else mu * size
    low_rank, sparse, iterations, residual, converged = _solve(scaled, lam, mu_, tol, max_iter)
    if n1 < n2:
        low_rank, sparse = low_rank.mT, sparse.mT
    if not converged.all():
        warnings.warn(
            f"principal component pursuit stopped after {max_iter} iterations at a residual of "
            f"{residual.max().item():.1e}; raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=2,
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
    m: Tensor, lam: float, mu: Tensor | None, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All matrices at once; one that has converged is put aside, so each gets the result it would get alone."""
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
        error = m - low + dual / mu
        sp = error - error.clamp(-lam / mu, lam / mu)
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
        if balance and i < max_iter // 2:  # then fixed: the convergence proof wants that in the end
            ratio = torch.ones_like(primal)
            ratio[primal > _BALANCE * moved] = _GROWTH
            ratio[moved > _BALANCE * primal] = 1 / _GROWTH
            mu = mu * ratio[:, None, None]
    return low_rank, sparse, iterations, residual, converged


def shrink_singular_values(x: Tensor, tau: Tensor) -> Tensor:
    """D_tau(x) for a square or tall x: its singular values less tau (…, 1), through the Gram matrix xᵀx.

    That costs a third of an SVD or less. Singular values below 1e-8 of the largest are lost to the squaring,
    and those below tau are set to zero anyway.
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
    """The smaller of ‖L‖ and ‖S‖, never so small that rounding hides it. S may vanish for good, but a vanished L
    may only be waiting for its turn under huge errors, so then nothing but rounding may be left over."""
    low_rank, errors, floor = _norm(low), _norm(sparse), 1e-7 * norm
    smaller = torch.where(errors > 0, torch.minimum(low_rank, errors), low_rank)
    return torch.maximum(smaller, floor)
