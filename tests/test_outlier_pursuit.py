"""Outlier Pursuit on the setting of Xu, Caramanis and Sanghavi (2012), with samples as rows, and at its edges."""

import math

import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

import principal_attention as pa
from principal_attention import ConvergenceWarning, DtypeError, InputError, NonFiniteError, RobustPCA


def problem(n, features, rank, share, *, size=1.0, same=False, seed=0):
    """Inliers of the given rank (their rows of the second matrix are 0), and Gaussian outliers at random rows."""
    draw = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    inliers = torch.randn(n, rank, **draw) @ torch.randn(rank, features, **draw)
    hit = torch.zeros(n, dtype=torch.bool)
    hit[torch.randperm(n, generator=draw["generator"])[: round(share * n)]] = True
    outliers = size * torch.randn(1 if same else n, features, **draw).expand(n, features)
    return torch.where(hit[:, None], 0.0, inliers), torch.where(hit[:, None], outliers, 0.0)


def row_space(x):
    """Projector onto the row space; singular values below 1e-5 of the largest count as 0."""
    _, s, vt = torch.linalg.svd(x, full_matrices=False)
    vt = vt[s > 1e-5 * s[0]]
    return vt.mT @ vt


def assert_recovered(result, inliers, outliers):
    """The paper's claim: the row space of the inliers is exact, and the outliers are exactly the rows with S ≠ 0."""
    assert result.converged.all()
    # the tolerance of 1e-7, over the smallest singular value of the inliers
    torch.testing.assert_close(row_space(result.low_rank), row_space(inliers), atol=1e-5, rtol=0)
    assert torch.equal(result.sparse.norm(dim=-1) > 0, outliers.norm(dim=-1) > 0)
    kept = outliers.norm(dim=-1) == 0
    torch.testing.assert_close(result.low_rank[kept], inliers[kept], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(200, 100), (150, 300)])
@pytest.mark.parametrize(("rank", "share"), [(1, 0.3), (3, 0.1), (5, 0.05)])
@pytest.mark.parametrize("size", [0.1, 100.0])
def test_row_space_and_outliers_are_recovered(shape, rank, share, size):
    inliers, outliers = problem(*shape, rank, share, size=size)
    assert_recovered(pa.outlier_pursuit(inliers + outliers), inliers, outliers)


def test_the_papers_weight_bears_equal_outliers_within_its_bound():
    """γ/(1 − γ) ≤ 9/(121·μ·rank), with λ = 3/(7√(γn)). The default weight is for outliers that differ."""
    inliers, outliers = problem(200, 50, 1, 0.02, same=True)
    assert_recovered(pa.outlier_pursuit(inliers + outliers, lam=3 / (7 * math.sqrt(0.015 * 200))), inliers, outliers)
    inliers, outliers = problem(200, 50, 1, 0.1, same=True)
    assert not (pa.outlier_pursuit(inliers + outliers).sparse[outliers.norm(dim=-1) > 0]).any()


@pytest.mark.parametrize(("shape", "lam"), [((40, 15), 0.5), ((40, 15), 0.7), ((15, 40), 0.7)])
def test_the_solution_has_a_subgradient_certificate(shape, lam):
    """Optimal if one Q is a subgradient of ‖·‖₊ at L and of lam·‖·‖₂,₁ at S. Noise makes S ≠ 0 in every row, so that
    Q = lam·S/‖S‖, or L of full rank, so that Q = UVᵀ; then Q must also fit the other part."""
    m = sum(problem(*shape, 2, 0.2, seed=4)) + 0.3 * problem(*shape, 15, 0, seed=9)[0]
    result = pa.outlier_pursuit(m, lam=lam, tol=1e-11, max_iter=5000)
    torch.testing.assert_close(result.low_rank + result.sparse, m)
    u, s, vt = torch.linalg.svd(result.low_rank, full_matrices=False)
    length = result.sparse.norm(dim=1, keepdim=True)
    rank, hit = int((s > 1e-7).sum()), length[:, 0] > 1e-7
    u, vt = u[:, :rank], vt[:rank]
    near = {"atol": 1e-6, "rtol": 0}  # the tolerance of 1e-11 over the smallest singular value and row
    if hit.all():
        assert 0 < rank < min(shape)
        q = lam * result.sparse / length
        torch.testing.assert_close(q @ vt.mT, u, **near)
        torch.testing.assert_close(u.mT @ q, vt, **near)
        assert torch.linalg.matrix_norm(q, 2) < 1 + 1e-6
    else:
        assert hit.any()
        assert rank == min(shape)
        q = u @ vt
        torch.testing.assert_close(q[hit], lam * (result.sparse / length)[hit], **near)
        assert q.norm(dim=1).max() < lam + 1e-6


def test_the_solution_has_the_value_of_a_smoothed_solver():
    """Accelerated gradient descent on the smoothed objective over L alone, without singular-value shrinkage."""
    inliers, outliers = problem(20, 8, 2, 0.2)
    m, lam = inliers + outliers + 0.1 * problem(20, 8, 8, 0.0, seed=9)[0], 0.5
    ours = pa.outlier_pursuit(m, lam=lam, tol=1e-10, max_iter=20000)
    low_rank = m.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([low_rank], max_iter=1500, tolerance_grad=1e-9, tolerance_change=0, history_size=50,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def objective(x, smooth):
        nuclear = (torch.linalg.eigvalsh(x.mT @ x) + smooth**2).clamp(min=0).sqrt().sum()
        return nuclear + lam * ((m - x).square().sum(1) + smooth**2).sqrt().sum()

    def closure():
        optimiser.zero_grad()
        value = objective(low_rank, 1e-5)
        value.backward()
        return value

    optimiser.step(closure)
    best, found = objective(ours.low_rank, 0.0), objective(low_rank.detach(), 0.0)
    # smoothing by 1e-5 adds at most 1e-5 for each of the 8 singular values and lam·1e-5 for each of the 20 rows
    assert best <= found + 1e-9
    assert found - best < (8 + 20 * lam) * 1e-5


def test_a_batch_equals_its_members():
    parts = [problem(40, 20, 2, share, size=size, seed=seed) for seed, (share, size) in
             enumerate([(0.05, 1), (0.2, 50), (0, 1)])]  # fmt: skip
    m = torch.stack([low + out for low, out in parts] + [torch.zeros(40, 20, dtype=torch.float64)])
    batch = pa.outlier_pursuit(m.reshape(2, 2, 40, 20))
    assert batch.converged.all()
    assert batch.iterations.shape == (2, 2)
    for i in range(4):
        one = pa.outlier_pursuit(m[i])
        torch.testing.assert_close(batch.sparse.reshape(4, 40, 20)[i], one.sparse)
        assert batch.iterations.flatten()[i] == one.iterations
    assert (batch.low_rank[1, 1] == 0).all()


def test_rotations_permutations_scales_and_empty_features_carry_through():
    """Of the features, of the samples, of all; with more features than samples the transposed problem is solved."""
    inliers, outliers = problem(40, 20, 2, 0.1)
    m = inliers + outliers
    plain = pa.outlier_pursuit(m, tol=1e-9).sparse
    turn = torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    wide = torch.cat([m, m.new_zeros(40, 40)], 1)
    for changed, expected in (
        (m @ turn, plain @ turn), (m[order], plain[order]), (1e20 * m, 1e20 * plain), (1e-20 * m, 1e-20 * plain),
        (-m, -plain), (wide, torch.cat([plain, m.new_zeros(40, 40)], 1)),
    ):  # fmt: skip
        result = pa.outlier_pursuit(changed, tol=1e-9)
        assert result.converged
        assert (result.sparse - expected).norm() < 1e-6 * expected.norm()


def test_extremes():
    inliers, outliers = problem(40, 20, 2, 0.1)
    m = inliers + outliers
    assert not pa.outlier_pursuit(m, lam=1.01).sparse.any()  # ‖UVᵀ‖ of a row is at most 1
    assert pa.outlier_pursuit(m, lam=1e-3).low_rank.abs().max() < 1e-6
    assert not pa.outlier_pursuit(m[:1]).sparse.any()  # one row is no outlier
    assert pa.outlier_pursuit(torch.zeros(0, 5, 4)).low_rank.shape == (0, 5, 4)
    assert pa.outlier_pursuit(m.float(), tol=1e-5).low_rank.dtype == torch.float32
    fixed = pa.outlier_pursuit(m, mu=800 / (4 * m.abs().sum().item()))
    assert torch.equal(fixed.sparse.norm(dim=-1) > 0, outliers.norm(dim=-1) > 0)
    with pytest.warns(ConvergenceWarning, match="outlier pursuit did not converge: it stopped after 3 iterations"):
        pa.outlier_pursuit(m, max_iter=3)


@pytest.mark.parametrize(
    ("m", "options", "kind", "says"),
    [
        (torch.zeros(3), {}, InputError, r"\(3,\)"),
        (torch.zeros(3, 3, dtype=torch.int64), {}, DtypeError, "torch.int64"),
        (torch.full((3, 3), math.nan), {}, NonFiniteError, "NaN or infinity"),
        (torch.zeros(3, 3), {"lam": -1.0}, InputError, "lam is -1.0"),
        (torch.zeros(3, 3), {"mu": 0.0}, InputError, "mu is 0.0"),
        (torch.zeros(3, 3), {"max_iter": 0}, InputError, "max_iter is 0"),
        ([[1.0]], {}, DtypeError, "m is a list"),
    ],
)
def test_bad_input_is_named(m, options, kind, says):
    with pytest.raises(kind, match=says):
        pa.outlier_pursuit(m, **options)


@pytest.mark.filterwarnings("ignore::principal_attention.ConvergenceWarning")  # random data of full rank
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([RobustPCA(kind="rows")])
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def test_the_estimator_finds_axes_and_outliers():
    inliers, outliers = problem(200, 50, 3, 0.1, size=10.0)
    model = RobustPCA(kind="rows").fit((inliers + outliers).numpy())
    assert model.converged_
    assert ((model.sparse_ != 0).any(1) == (outliers != 0).any(1).numpy()).all()
    # the mean of the centred low-rank part lies in its row space, which has the 3 axes
    axes = torch.from_numpy(model.components_)
    torch.testing.assert_close(axes.mT @ axes, row_space(inliers), atol=1e-5, rtol=0)
    with pytest.raises(InputError, match="kind is 'columns'; expected 'entries' or 'rows'"):
        RobustPCA(kind="columns").fit(inliers.numpy())
