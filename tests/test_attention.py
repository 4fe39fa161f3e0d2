"""Symmetric and Scaled Attention compared with explicit formulas."""

import math

import pytest
import torch
import torch.nn.functional as F

import principal_attention as pa
from principal_attention import InputError
from principal_attention.attention import exact_mixing

B, H, N, D = 2, 3, 13, 6


def weights(q, k, mask=None):
    logits = q @ k.mT / math.sqrt(k.shape[-1])
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    return torch.softmax(logits, -1)


def exact_matrix(k, valid=None):
    """S = (1/N) g⁻¹gᵀ as in the paper, without padded tokens."""
    kernel = torch.exp(k @ k.mT / math.sqrt(k.shape[-1]))
    if valid is None:
        valid = torch.ones(k.shape[:-1], dtype=torch.bool)
    g = (kernel * valid.unsqueeze(-2)).sum(-1)
    s = g.unsqueeze(-2) / g.unsqueeze(-1) / valid.sum(-1)[..., None, None]
    return s * valid.unsqueeze(-2) * valid.unsqueeze(-1)


def test_symmetric_attention_is_torchs_own_with_keys_for_queries(make):
    k, v = make(B, H, N, D)
    torch.testing.assert_close(pa.symmetric_attention(k, v), F.scaled_dot_product_attention(k, k, v))
    torch.testing.assert_close(
        pa.symmetric_attention(k, v, is_causal=True, scale=0.3),
        F.scaled_dot_product_attention(k, k, v, is_causal=True, scale=0.3),
    )
    key_mask = torch.rand(B, 1, N) > 0.3
    mask = key_mask[..., None, :] & torch.ones(N, N, dtype=torch.bool).tril()
    torch.testing.assert_close(
        pa.symmetric_attention(k, v, key_mask=key_mask, is_causal=True),
        F.scaled_dot_product_attention(k, k, v, attn_mask=mask),
    )


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 2, 3)])
def test_leading_dimensions_and_widths_stay_on_the_fused_kernel(make, lead):
    (k,), (v,) = make(*lead, N, D, count=1), make(*lead, N, 9, count=1)
    torch.testing.assert_close(pa.symmetric_attention(k, v), weights(k, k) @ v)
    key_mask = torch.rand(*lead, N) > 0.3
    expected = weights(k, k, key_mask.unsqueeze(-2)) @ v
    torch.testing.assert_close(pa.symmetric_attention(k, v, key_mask=key_mask), expected)


class TestScaled:
    def test_a_zero_mixing_is_softmax_attention(self, make):
        q, k, v = make(B, H, N, D, count=3)
        plain = F.scaled_dot_product_attention(q, k, v)
        for mixing in (torch.zeros(H, N, N), torch.zeros(()), 0.0):
            torch.testing.assert_close(pa.scaled_attention(q, k, v, mixing=mixing), plain)

    def test_matrix(self, make):
        q, k, v = make(B, H, N, D, count=3)
        (s,) = make(H, N, N, count=1, seed=3)
        eye = torch.eye(N, dtype=s.dtype)
        torch.testing.assert_close(pa.scaled_attention(q, k, v, mixing=s), weights(q, k) @ (eye - s) @ v)
        tril = torch.ones(N, N, dtype=torch.bool).tril()
        torch.testing.assert_close(
            pa.scaled_attention(q, k, v, mixing=s, is_causal=True), weights(q, k, tril) @ (eye - s.tril()) @ v
        )

    def test_alpha(self, make):
        q, k, v = make(B, H, N, D, count=3)
        alpha = torch.tensor(0.7, dtype=torch.float64)
        expected = weights(q, k) @ (v - 0.7 * weights(k, k) @ v)
        torch.testing.assert_close(pa.scaled_attention(q, k, v, mixing=alpha), expected)
        torch.testing.assert_close(pa.scaled_attention(q, k, v, mixing=alpha.reshape(1)), expected)

    def test_exact_is_the_rank_one_matrix_of_remark_3(self, make):
        q, k, v = make(B, H, N, D, count=3)
        s = exact_matrix(k)
        torch.testing.assert_close(s @ s, s)  # idempotent
        torch.testing.assert_close(exact_mixing(k, v), s @ v)
        expected = weights(q, k) @ (v - s @ v)
        torch.testing.assert_close(pa.scaled_attention(q, k, v, mixing="exact"), expected)

    def test_exact_counts_valid_tokens_only(self, make):
        q, k, v = make(B, H, N, D, count=3)
        key_mask = torch.rand(B, 1, N) > 0.3
        valid = key_mask.expand(B, H, N)
        expected = weights(q, k, key_mask.unsqueeze(-2)) @ (v - exact_matrix(k, valid) @ v)
        out = pa.scaled_attention(q, k, v, mixing="exact", key_mask=key_mask)
        torch.testing.assert_close(out, expected)
        other_k, other_v = k.clone(), v.clone()
        other_k[~valid], other_v[~valid] = 9.0, 9.0
        assert torch.equal(out, pa.scaled_attention(q, other_k, other_v, mixing="exact", key_mask=key_mask))
        nobody = torch.zeros(B, 1, N, dtype=torch.bool)
        assert (pa.scaled_attention(q, k, v, mixing="exact", key_mask=nobody) == 0).all()

    def test_exact_leaves_kernel_pca_values_unchanged(self, make):
        """The theorem's values are orthogonal to g, so S·V = 0."""
        (k,) = make(B, H, N, D, count=1)
        values = pa.KernelPCA(5).fit(k).values_
        assert exact_mixing(k, values).abs().max() < 1e-12 * values.abs().max()

    def test_exact_survives_a_kernel_beyond_float64(self, make):
        """exp(kᵀk/√D) would overflow; equal norms keep the true ratio g/g small."""
        q, k, v = make(N, D, count=3)
        k = 200 * k / k.norm(dim=-1, keepdim=True)
        assert torch.isinf(torch.exp(k @ k.mT / math.sqrt(D))).any()
        out = pa.scaled_attention(q, k, v, mixing="exact")
        expected = weights(q, k) @ (v - v.mean(0))  # log g is equal for all keys: S averages
        torch.testing.assert_close(out, expected)

    @pytest.mark.parametrize("kind", ["matrix", "alpha"])
    def test_causal_forms_do_not_see_the_future(self, make, kind):
        q, k, v = make(B, H, N, D, count=3)
        mixing = make(H, N, N, count=1)[0] if kind == "matrix" else torch.tensor(0.5, dtype=torch.float64)
        before = pa.scaled_attention(q, k, v, mixing=mixing, is_causal=True)
        for t in (q, k, v):
            t[..., 7:, :] = 5.0
        after = pa.scaled_attention(q, k, v, mixing=mixing, is_causal=True)
        assert torch.equal(before[..., :7, :], after[..., :7, :])

    def test_matrix_ignores_padded_values(self, make):
        q, k, v = make(B, H, N, D, count=3)
        (s,) = make(H, N, N, count=1)
        key_mask = torch.arange(N) < 9
        before = pa.scaled_attention(q, k, v, mixing=s, key_mask=key_mask)
        for t in (k, v):
            t[..., 9:, :] = 7.0
        assert torch.equal(before, pa.scaled_attention(q, k, v, mixing=s, key_mask=key_mask))

    def test_gradients(self, make):
        q, k, v = (t.requires_grad_() for t in make(5, 3, count=3))
        alpha = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        (s,) = (t.requires_grad_() for t in make(5, 5, count=1))
        assert torch.autograd.gradcheck(lambda *t: pa.scaled_attention(*t[:3], mixing=t[3]), (q, k, v, alpha))
        assert torch.autograd.gradcheck(lambda *t: pa.scaled_attention(*t[:3], mixing=t[3]), (q, k, v, s))
        assert torch.autograd.gradcheck(lambda *t: pa.scaled_attention(*t, mixing="exact"), (q, k, v))

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (dict(mixing="exct"), "'exct'"),
            (dict(mixing="exact", is_causal=True), "no is_causal"),
            (dict(mixing="exact", attn_mask=torch.ones(N, N, dtype=torch.bool)), "attn_mask"),
            (dict(mixing=torch.zeros(H, N, N + 1)), r"\(3, 13, 14\)"),
            (dict(mixing=torch.zeros(4)), r"\(4,\)"),
            (dict(mixing=torch.zeros(4, N, N)), r"\(4, 13, 13\)"),
            (dict(mixing=None), "mixing is a NoneType"),
            (dict(mixing=[1.0]), "mixing is a list"),
        ],
    )
    def test_bad_mixing_is_named(self, make, options, says):
        q, k, v = make(B, H, N, D, count=3)
        with pytest.raises(InputError, match=says):
            pa.scaled_attention(q, k, v, **options)
