"""Principal Component Pursuit in the setting of Candès et al. (JACM 2011), Table 1, and in edge cases."""

import math

import pytest
import torch

import principal_attention as pa
from principal_attention import ConvergenceWarning, DtypeError, InputError, NonFiniteError
from principal_attention.pcp import shrink_singular_values


def problem(n, rank, share, size=1.0, seed=0, m=None):
    """L = XYᵀ with entries of X, Y from N(0, 1/n); errors ±size at random places."""
    random = torch.Generator().manual_seed(seed)
    m = n if m is None else m
    x, y = (torch.randn(a, rank, generator=random, dtype=torch.float64) / math.sqrt(n) for a in (n, m))
    hit = torch.rand(n, m, generator=random) < share
    sign = torch.randint(0, 2, (n, m), generator=random) * 2 - 1
    return x @ y.mT, hit * sign * size * torch.ones((), dtype=torch.float64)


def relative(x, y):
    return ((x - y).norm() / y.norm()).item()


@pytest.mark.parametrize("share", [0.05, 0.10])
@pytest.mark.parametrize(("size", "error"), [(1.0, 1e-5), (100.0, 1e-4)])
def test_it_recovers_candes_table_1(share, size, error):
    low_rank, sparse = problem(500, 25, share, size)
    result = pa.principal_component_pursuit(low_rank + sparse)
    assert result.converged
    assert relative(result.low_rank, low_rank) < error
    assert torch.linalg.matrix_rank(result.low_rank) == 25
    assert result.residual < 1e-7
    assert relative(result.sparse, sparse) < error


@pytest.mark.parametrize("size", [1e-2, 1e4, 1e7, 1e8])
def test_errors_of_any_size_do_not_hide_the_low_rank_part(size):
    low_rank, sparse = problem(60, 3, 0.05, size)
    result = pa.principal_component_pursuit(low_rank + sparse)
    assert result.converged
    assert relative(result.low_rank, low_rank) < 1e-5


def test_purely_sparse_and_purely_low_rank_matrices():
    low_rank, sparse = problem(60, 3, 0.02)
    only = pa.principal_component_pursuit(sparse)
    assert only.converged
    assert (only.low_rank == 0).all()
    torch.testing.assert_close(only.sparse, sparse)
    only = pa.principal_component_pursuit(low_rank)
    assert only.converged
    assert relative(only.low_rank, low_rank) < 1e-6


def test_an_empty_batch():
    assert pa.principal_component_pursuit(torch.zeros(0, 5, 4)).low_rank.shape == (0, 5, 4)


def test_the_printed_sign_of_the_dual_diverges():
    """Reason not to use the paper's update of L: with −Y/mu instead of +Y/mu the same problem diverges."""
    low_rank, sparse = problem(60, 3, 0.05)
    m = low_rank + sparse
    lam, mu = 1 / math.sqrt(60), torch.tensor([m.numel() / (4 * m.abs().sum())], dtype=torch.float64)
    for sign, converges in ((+1, True), (-1, False)):
        estimate, dual = torch.zeros_like(m), torch.zeros_like(m)
        for _ in range(200):
            error = m - estimate + dual / mu
            sp = error - error.clamp(-(lam / mu).item(), (lam / mu).item())
            estimate = shrink_singular_values(m - sp + sign * dual / mu, 1 / mu)
            dual = dual + mu * (m - estimate - sp)
        assert (relative(estimate, low_rank) < 1e-5) == converges


def test_singular_value_shrinkage_equals_the_svds():
    x = torch.randn(3, 40, 15, dtype=torch.float64)
    tau = torch.tensor([[0.5], [6.0], [100.0]], dtype=torch.float64)
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    expected = (u * (s - tau).clamp(min=0).unsqueeze(-2)) @ vt
    torch.testing.assert_close(shrink_singular_values(x, tau), expected)


def test_the_solution_is_a_minimum():
    """L + S = M, and no feasible step away from it lowers ‖L‖₊ + lam‖S‖₁."""
    m = torch.randn(30, 12, dtype=torch.float64)
    lam = 1 / math.sqrt(30)
    result = pa.principal_component_pursuit(m, tol=1e-10, max_iter=20000)

    def objective(low_rank):
        return torch.linalg.svdvals(low_rank).sum() + lam * (m - low_rank).abs().sum()

    best = objective(result.low_rank)
    torch.testing.assert_close(result.low_rank + result.sparse, m)
    for seed in range(50):
        step = torch.randn(m.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for size in (1e-3, 1e-1):
            assert objective(result.low_rank + size * step) > best - 1e-9


@pytest.mark.parametrize("shape", [(200, 20), (20, 200)])
def test_tall_and_wide_are_transposes_of_each_other(shape):
    low_rank, sparse = problem(shape[0], 2, 0.05, m=shape[1])
    m = low_rank + sparse
    one, other = pa.principal_component_pursuit(m), pa.principal_component_pursuit(m.mT)
    torch.testing.assert_close(one.low_rank, other.low_rank.mT)
    assert one.iterations == other.iterations


def test_a_batch_equals_its_members():
    parts = [problem(40, 2, share, size, seed) for seed, (share, size) in enumerate([(0.02, 1), (0.1, 50), (0, 1)])]
    m = torch.stack([low_rank + sparse for low_rank, sparse in parts] + [torch.zeros(40, 40, dtype=torch.float64)])
    batch = pa.principal_component_pursuit(m.reshape(2, 2, 40, 40))
    assert batch.converged.all()
    assert batch.iterations.shape == (2, 2)
    for i in range(4):
        one = pa.principal_component_pursuit(m[i])
        torch.testing.assert_close(batch.low_rank.reshape(4, 40, 40)[i], one.low_rank)
        assert batch.iterations.flatten()[i] == one.iterations
    assert (batch.low_rank[1, 1] == 0).all()


@pytest.mark.parametrize("size", [1e-300, 1e-20, 1.0, 1e20, 1e300])
def test_no_size_gives_nan(size):
    low_rank, sparse = problem(30, 2, 0.05)
    result = pa.principal_component_pursuit(size * (low_rank + sparse))
    assert torch.isfinite(result.low_rank).all()
    assert relative(result.low_rank / size, low_rank) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_result_has_the_dtype_of_the_input(dtype):
    low_rank, sparse = problem(60, 2, 0.05)
    result = pa.principal_component_pursuit((low_rank + sparse).to(dtype), tol=1e-5, max_iter=5000)
    assert result.low_rank.dtype == dtype
    assert (
        relative(result.low_rank.double(), low_rank) < 1e-5 + 20 * torch.finfo(dtype).eps
    )  # the tolerance, or rounding of m


def test_a_fixed_mu_and_other_lams_are_obeyed():
    low_rank, sparse = problem(40, 2, 0.05)
    m = low_rank + sparse
    fixed = pa.principal_component_pursuit(m, mu=1600 / (4 * m.abs().sum().item()))
    assert relative(fixed.low_rank, low_rank) < 1e-5
    assert torch.equal(pa.principal_component_pursuit(m, lam=1e9).sparse, torch.zeros_like(m))
    assert pa.principal_component_pursuit(m, lam=1e-3).low_rank.abs().max() < 1e-6


def test_stopping_early_is_said():
    low_rank, sparse = problem(40, 2, 0.05)
    with pytest.warns(ConvergenceWarning, match="after 3 iterations at a residual of"):
        result = pa.principal_component_pursuit(low_rank + sparse, max_iter=3)
    assert not result.converged
    assert result.iterations == 3
    torch.testing.assert_close(
        result.residual, (low_rank + sparse - result.low_rank - result.sparse).norm() / (low_rank + sparse).norm()
    )


@pytest.mark.parametrize(
    ("m", "options", "kind", "says"),
    [
        (torch.zeros(3), {}, InputError, r"\(3,\)"),
        (torch.zeros(0, 3), {}, InputError, "at least one row"),
        (torch.zeros(3, 3, dtype=torch.int64), {}, DtypeError, "torch.int64"),
        (torch.full((3, 3), math.nan), {}, NonFiniteError, "NaN or infinity"),
        (torch.full((3, 3), math.inf), {}, NonFiniteError, "NaN or infinity"),
        (torch.zeros(3, 3), {"lam": -1.0}, InputError, "lam is -1.0"),
        (torch.zeros(3, 3), {"mu": 0.0}, InputError, "mu is 0.0"),
        (torch.zeros(3, 3), {"tol": 0.0}, InputError, "tol is 0.0"),
        (torch.zeros(3, 3), {"max_iter": 0}, InputError, "max_iter is 0"),
        (torch.zeros(3, 3), {"max_iter": 10.5}, InputError, "max_iter is 10.5"),
        (torch.zeros(3, 3), {"mu": math.inf}, InputError, "mu is infinite"),
        (torch.zeros(3, 3).numpy(), {}, DtypeError, "m is a ndarray"),
    ],
)
def test_bad_input_is_named(m, options, kind, says):
    with pytest.raises(kind, match=says):
        pa.principal_component_pursuit(m, **options)
