"""Theorem 1, and comparison with scikit-learn's kernel PCA."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import KernelPCA as SklearnKernelPCA

import principal_attention as pa
from principal_attention import InputError, KernelPCA, NonFiniteError, RankError

N, D = 24, 6


def gram(keys):
    """K_φ computed from its definition."""
    kernel = torch.exp(keys @ keys.mT / math.sqrt(keys.shape[-1]))
    g = kernel.sum(-1)
    return kernel / (g.unsqueeze(-1) * g.unsqueeze(-2))


def test_theorem_1_attention_with_these_values_is_the_projection(make):
    keys, queries = make(2, 3, N, D)
    pca = KernelPCA(10).fit(keys)
    attention = torch.softmax(queries @ keys.mT / math.sqrt(D), -1) @ pca.values_
    # An O(1) number of roundings of numbers below 1.
    assert (attention - pca.transform(queries)).abs().max() < 1e-12
    out = pa.kernel_pca_attention(queries, keys, n_components=10)
    assert (out - pca.transform(queries)).abs().max() < 1e-12


def test_coefficients_solve_the_eigenproblem_and_axes_are_unit(make):
    (keys,) = make(2, N, D, count=1)
    pca = KernelPCA(8).fit(keys)
    center = torch.eye(N, dtype=keys.dtype) - 1 / N
    centred = center @ gram(keys) @ center
    a, values = pca.coefficients_, pca.eigenvalues_
    torch.testing.assert_close(centred @ a, a * values.unsqueeze(-2))
    torch.testing.assert_close(a.mT @ centred @ a, torch.eye(8, dtype=a.dtype).expand(2, 8, 8))
    torch.testing.assert_close(a.sum(-2), torch.zeros(2, 8, dtype=a.dtype), atol=1e-9 * a.abs().max().item(), rtol=0)
    assert (values.diff(dim=-1) <= 0).all()
    # The mean term of the theorem vanishes, so V = G·A.
    g = torch.exp(keys @ keys.mT / math.sqrt(D)).sum(-1, keepdim=True)
    torch.testing.assert_close(pca.values_, a / g)


def test_it_agrees_with_scikit_learn_up_to_sign_and_the_centring_row(make):
    keys, queries = (t[0] for t in make(1, N, D))
    ours = KernelPCA(7).fit(keys)
    kernel = torch.exp(queries @ keys.mT / math.sqrt(D))
    g_keys = torch.exp(keys @ keys.mT / math.sqrt(D)).sum(-1)
    cross = kernel / (kernel.sum(-1, keepdim=True) * g_keys)
    theirs = SklearnKernelPCA(7, kernel="precomputed", eigen_solver="dense").fit(gram(keys).numpy())
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    expected = torch.from_numpy(theirs.transform(cross.numpy()))
    centred = ours.transform(queries, centered=True)
    signs = torch.sign((centred * expected).sum(0))
    torch.testing.assert_close(centred * signs, expected)
    difference = ours.transform(queries) - centred
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))
    assert difference.abs().max() > 1e-6


def test_training_scores_are_centred_eigenvectors(make):
    (keys,) = make(N, D, count=1)
    pca = KernelPCA(5).fit(keys)
    scores = pca.transform(keys, centered=True)
    torch.testing.assert_close(scores, pca.coefficients_ * pca.eigenvalues_)


def test_signs_are_deterministic_and_permutations_carry_over(make):
    (keys,) = make(N, D, count=1)
    pca = KernelPCA(6).fit(keys)
    vectors = pca.coefficients_
    assert (vectors.gather(0, vectors.abs().argmax(0, keepdim=True)) > 0).all()
    order = torch.randperm(N)
    moved = KernelPCA(6).fit(keys[order])
    torch.testing.assert_close(moved.coefficients_, vectors[order], rtol=1e-6, atol=1e-8 * vectors.abs().max().item())


def test_a_batch_equals_its_members_and_float32_input_float64(make):
    keys, queries = make(2, 3, N, D)
    batch = KernelPCA(4).fit(keys)
    for i in range(2):
        for j in range(3):
            one = KernelPCA(4).fit(keys[i, j])
            torch.testing.assert_close(batch.eigenvalues_[i, j], one.eigenvalues_)
            torch.testing.assert_close(batch.transform(queries)[i, j], one.transform(queries[i, j]))
    single, double = KernelPCA(4).fit(keys.float()), KernelPCA(4).fit(keys.float().double())
    assert single.eigenvalues_.dtype == torch.float64
    assert torch.equal(single.eigenvalues_, double.eigenvalues_)


def test_projection_error_is_the_distance_to_the_axes(make):
    """Checked on explicit features: a Cholesky factor of the Gram matrix of keys and queries together."""
    keys, queries = make(9, 4)
    points = torch.cat([keys, queries])
    logits = points @ points.mT / 2
    g = torch.exp(points @ keys.mT / 2).sum(-1)
    features = torch.linalg.cholesky(torch.exp(logits) / torch.outer(g, g))
    phi_keys, phi = features[:9], features[9:]
    _, _, axes = torch.linalg.svd(phi_keys - phi_keys.mean(0), full_matrices=False)
    for d in (1, 3, 8):
        rest = phi - phi @ axes[:d].mT @ axes[:d]
        pca = KernelPCA(d).fit(keys)
        torch.testing.assert_close(pca.projection_error(queries), rest.square().sum(-1).mean())
        assert pca.projection_error(queries) >= 0


def test_the_trace_bounds_the_spectrum(make):
    """k_φ(k, k) ≤ 1, so no eigenvalue of the Gram matrix can exceed N."""
    (keys,) = make(5, 50, 16, count=1)
    pca = KernelPCA().fit(keys)
    assert (pca.eigenvalues_.sum(-1) <= 50).all()
    assert pca.n_components_ == int(pca.rank_.min())


class TestRank:
    def test_more_than_n_minus_one_is_refused_with_the_rank(self, make):
        (keys,) = make(10, 20, count=1)
        KernelPCA(9).fit(keys)
        with pytest.raises(RankError, match="at most 9 axes") as caught:
            KernelPCA(10).fit(keys)
        assert caught.value.rank == 9

    def test_repeated_keys_have_the_rank_of_their_distinct_ones(self, make):
        (keys,) = make(4, 6, count=1)
        with pytest.raises(RankError, match="numerical rank 3") as caught:
            KernelPCA(4).fit(keys.repeat(5, 1))
        assert caught.value.rank == 3
        assert KernelPCA().fit(keys.repeat(5, 1)).n_components_ == 3

    @pytest.mark.parametrize("keys", [torch.zeros(6, 3), torch.ones(1, 3)], ids=["equal keys", "one key"])
    def test_keys_without_spread_have_no_axis(self, keys):
        with pytest.raises(RankError) as caught:
            KernelPCA(1).fit(keys)
        assert caught.value.rank == 0

    def test_huge_keys_collapse_to_a_low_rank_that_is_found_and_named(self, make):
        keys, queries = make(50, 64)
        keys = keys / keys.norm(dim=-1, keepdim=True) * torch.linspace(900, 1100, 50, dtype=keys.dtype)[:, None]
        with pytest.raises(RankError, match="numerical rank") as caught:
            KernelPCA(20).fit(keys)
        rank = caught.value.rank
        assert 0 < rank < 20
        pca = KernelPCA(rank).fit(keys)
        for result in (pca.eigenvalues_, pca.coefficients_, pca.values_, pca.transform(queries),
                       pca.transform(queries, centered=True), pca.projection_error(queries)):  # fmt: skip
            assert not torch.isnan(result).any()
        out = pa.kernel_pca_attention(queries, keys, n_components=20)
        assert torch.isfinite(out).all()

    @pytest.mark.parametrize("size", [1.0, 10.0, 1e3, 1e5])
    def test_no_size_of_keys_gives_nan(self, make, size):
        keys, queries = make(3, 30, 8)
        pca = KernelPCA().fit(size * keys)
        assert not torch.isnan(pca.values_).any()
        assert not torch.isnan(pca.transform(size * queries)).any()

    def test_kernel_pca_attention_fills_missing_components_with_zeros(self, make):
        keys, queries = make(4, 6)
        keys = keys.repeat(5, 1)
        out = pa.kernel_pca_attention(queries, keys, n_components=6)
        assert (out[:, 3:] == 0).all()
        torch.testing.assert_close(out[:, :3], KernelPCA(3).fit(keys).transform(queries))


class TestBadInput:
    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_non_finite_keys(self, make, bad):
        (keys,) = make(N, D, count=1)
        keys[2, 1] = bad
        with pytest.raises(NonFiniteError, match="NaN or infinity"):
            KernelPCA(2).fit(keys)

    def test_keys_whose_kernel_exceeds_float64(self, make):
        (keys,) = make(N, D, count=1)
        with pytest.raises(NonFiniteError, match="exceeds float64; scale them down"):
            KernelPCA(2).fit(1e155 * keys)

    def test_attention_with_non_finite_keys_loses_that_element_only(self, make):
        keys, queries = make(3, N, D)
        whole = pa.kernel_pca_attention(queries, keys, n_components=4)
        keys[1, 2, 1] = math.nan
        out = pa.kernel_pca_attention(queries, keys, n_components=4)
        assert torch.isnan(out[1]).all()
        torch.testing.assert_close(out[::2], whole[::2])

    def test_shapes(self, make):
        (keys,) = make(N, D, count=1)
        for wrong in (0, 2.5, "a"):
            with pytest.raises(InputError, match="expected a whole number from 1"):
                KernelPCA(wrong).fit(keys)
            with pytest.raises(InputError, match="expected a whole number from 1"):
                pa.kernel_pca_attention(keys, keys, n_components=wrong)
        for empty in (torch.zeros(0, 6, 4), torch.zeros(0, 4)):
            with pytest.raises(InputError, match="at least one key"):
                KernelPCA(2).fit(empty)
        with pytest.raises(InputError, match="call fit first"):
            KernelPCA(2).transform(keys)
        with pytest.raises(InputError, match="last dimension"):
            KernelPCA(2).fit(keys).projection_error(torch.zeros(3, D + 1))
        with pytest.raises(InputError, match=r"\(…, N, D\)"):
            KernelPCA(1).fit(torch.zeros(4))
        with pytest.raises(InputError, match="last dimension"):
            KernelPCA(2).fit(keys).transform(torch.zeros(3, D + 1))
        with pytest.raises(InputError, match="at most 23 axes"):
            pa.kernel_pca_attention(keys, keys, n_components=N)


def test_values_come_from_detached_keys_unless_asked(make):
    keys, queries = (t.requires_grad_() for t in make(8, 3))
    for differentiable in (False, True):
        (grad,) = torch.autograd.grad(
            pa.kernel_pca_attention(queries, keys, n_components=2, differentiable=differentiable).square().sum(), keys
        )
        fixed = pa.KernelPCA(2).fit(keys.detach()).values_
        (frozen,) = torch.autograd.grad(
            (torch.softmax(queries @ keys.mT / math.sqrt(3), -1) @ fixed).square().sum(), keys
        )
        assert torch.allclose(grad, frozen) != differentiable

    def function(q, k):
        return pa.kernel_pca_attention(q, k, n_components=2, differentiable=True).square()

    assert torch.autograd.gradcheck(function, (queries, keys))
