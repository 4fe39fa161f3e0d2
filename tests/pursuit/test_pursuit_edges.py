"""RPC-Attention in edge cases: masks, extreme inputs, dropout, the trace, and invalid input."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F

import principal_attention as pa
from principal_attention import InputError, Pursuit

B, H, N, D = 2, 3, 17, 8
WIDTH = H * D
PRESETS = tuple(pa.PRESETS)


@pytest.fixture
def key_mask():
    return torch.rand(B, 1, N, generator=torch.Generator().manual_seed(7)) > 0.3


def scale_error(x, y):
    return ((x - y).abs().max() / y.abs().max()).item()


class TestMasks:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("padded", [False, True])
    def test_later_tokens_change_no_earlier_row_bit_for_bit(self, make, preset, padded):
        k, v, q = make(B, H, 70, D, count=3)
        edit_k, edit_v, edit_q = make(B, H, 70, D, count=3, seed=1)
        key_mask = torch.ones(B, 1, 70, dtype=torch.bool)
        key_mask[0, :, :5] = False
        for t, n, query in product((1, 33, 69), (2, 5), (False, True)):
            changed = [torch.cat([a[..., :t, :], 1e3 * b[..., t:, :]], -2)
                       for a, b in ((k, edit_k), (v, edit_v), (q, edit_q))]  # fmt: skip
            options = dict(pursuit=Pursuit(n, 0.3, preset), is_causal=True, model_dim=WIDTH,
                           key_mask=key_mask if padded else None)  # fmt: skip
            before = pa.rpc_attention(k, v, q=q if query else None, **options)
            after = pa.rpc_attention(changed[0], changed[1], q=changed[2] if query else None, **options)
            assert torch.equal(before[..., :t, :], after[..., :t, :])
            assert not torch.equal(before[..., t:, :], after[..., t:, :])

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("causal", [False, True])
    def test_padded_tokens_change_nothing_bit_for_bit(self, make, key_mask, preset, causal):
        k, v, q = make(B, H, N, D, count=3)
        pad = ~key_mask.expand(B, H, N)
        other = [t.clone() for t in (k, v, q)]
        for t in other:
            t[pad] = 50 * torch.randn(int(pad.sum()), D, dtype=t.dtype)
        for n, query in product((1, 4), (False, True)):
            options = dict(pursuit=Pursuit(n, 0.3, preset), key_mask=key_mask, is_causal=causal, model_dim=WIDTH)
            before = pa.rpc_attention(k, v, q=q if query else None, **options)
            after = pa.rpc_attention(other[0], other[1], q=other[2] if query else None, **options)
            assert torch.equal(before[~pad], after[~pad])

    @pytest.mark.parametrize("preset", PRESETS)
    def test_a_padded_sequence_equals_the_short_one(self, make, preset):
        k, v = make(H, N, D)
        key_mask = torch.arange(N) < 11
        for causal in (False, True):
            options = dict(pursuit=Pursuit(4, 0.3, preset), is_causal=causal, model_dim=WIDTH)
            long = pa.rpc_attention(k, v, key_mask=key_mask, **options)
            short = pa.rpc_attention(k[:, :11], v[:, :11], **options)
            assert scale_error(long[:, :11], short) < 1e-12

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("causal", [False, True])
    def test_no_valid_token_gives_zero_rows_and_finite_gradients(self, make, preset, causal):
        k, v = (t.requires_grad_() for t in make(B, H, N, D))
        key_mask = torch.ones(B, 1, N, dtype=torch.bool)
        key_mask[1] = False
        out = pa.rpc_attention(
            k, v, pursuit=Pursuit(3, 0.3, preset), key_mask=key_mask, is_causal=causal, model_dim=WIDTH
        )
        assert torch.isfinite(out).all()
        assert (out[1] == 0).all()
        for grad in torch.autograd.grad(out.square().sum(), (k, v)):
            assert torch.isfinite(grad).all()
            assert (grad[1] == 0).all()

    @pytest.mark.parametrize("preset", PRESETS)
    def test_one_valid_token_attends_to_itself(self, make, preset):
        k, v, q = make(N, D, count=3)
        key_mask = torch.arange(N) == 3
        out = pa.rpc_attention(k, v, q=q, pursuit=Pursuit(4, 0.5, preset), key_mask=key_mask, model_dim=WIDTH)
        torch.testing.assert_close(out, v[3].expand(N, D))

    def test_a_causal_attn_mask_alone_still_shares_mu(self, make):
        """A mask hides keys in every pass; only is_causal makes mu a prefix mu, as documented."""
        k, v = make(N, D)
        tril = torch.ones(N, N, dtype=torch.bool).tril()
        masked = pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), attn_mask=tril)
        causal = pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), is_causal=True)
        assert scale_error(masked, causal) > 1e-3


class TestExtremes:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("lam", [0.0, 0.3, math.inf])
    def test_zero_keys_stay_finite_with_their_gradients(self, make, preset, lam):
        (v,) = make(H, N, D, count=1)
        for causal, n in product((False, True), (1, 3)):
            k = torch.zeros(H, N, D, dtype=torch.float64, requires_grad=True)
            options = dict(pursuit=Pursuit(n, lam, preset), is_causal=causal, model_dim=WIDTH)
            out = pa.rpc_attention(k, v, **options)
            assert torch.isfinite(out).all()
            assert torch.isfinite(torch.autograd.grad(out.square().sum(), k)[0]).all()

    @pytest.mark.parametrize("preset", PRESETS)
    def test_a_single_token_returns_its_value(self, make, preset):
        k, v = make(B, H, 1, D)
        for n, causal in product((1, 4), (False, True)):
            out = pa.rpc_attention(k, v, pursuit=Pursuit(n, 0.5, preset), is_causal=causal, model_dim=WIDTH)
            torch.testing.assert_close(out, v)

    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_huge_keys_and_half_precision_stay_finite(self, make, preset, dtype):
        k, v = make(B, H, N, D, dtype=dtype)
        for size in (1.0, 100.0):
            for n in (1, 2):
                out = pa.rpc_attention(size * k, v, pursuit=Pursuit(n, 4.0, preset), model_dim=WIDTH)
                assert out.dtype == dtype
                assert torch.isfinite(out).all()

    def test_mu_is_summed_wide_enough_for_half_precision(self):
        k = torch.full((1, 8192, 16), 8.0, dtype=torch.float16)  # |K| sums to 1e6, float16 ends at 65504
        v = torch.randn(1, 8192, 16).half()
        out = pa.rpc_attention(k, v, pursuit=Pursuit(1, 0.25))  # tau = mean|K|: nothing is cut
        torch.testing.assert_close(out, F.scaled_dot_product_attention(k[None], k[None], v[None])[0])

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_non_finite_input_spreads_as_through_softmax_attention(self, make, bad):
        k, v = make(N, D)
        v[3, 2] = bad
        plain = F.scaled_dot_product_attention(k[None], k[None], v[None])[0]
        out = pa.rpc_attention(k, v, pursuit=Pursuit(1, 4.0))
        assert torch.equal(torch.isfinite(plain), torch.isfinite(out))
        k[3, 2] = math.nan
        assert torch.isnan(pa.rpc_attention(k, v, pursuit=Pursuit(2, 4.0))).all()

    def test_any_leading_dimensions(self, make):
        k, v = make(2, 3, 2, 2, N, D)
        pursuit = Pursuit(3, 0.3)
        full = pa.rpc_attention(k, v, pursuit=pursuit)
        key_mask = torch.rand(2, 1, 2, 1, N) > 0.3
        masked = pa.rpc_attention(k, v, pursuit=pursuit, key_mask=key_mask, is_causal=True)
        for index in product(range(2), range(3), range(2), range(2)):
            torch.testing.assert_close(full[index], pa.rpc_attention(k[index], v[index], pursuit=pursuit))
            one = key_mask.expand(2, 3, 2, 2, N)[index]
            torch.testing.assert_close(
                masked[index], pa.rpc_attention(k[index], v[index], pursuit=pursuit, key_mask=one, is_causal=True)
            )

    def test_strided_keys_give_what_contiguous_ones_do(self, make):
        (x,) = make(B, N, 3, H, D, count=1)
        q, k, v = x.permute(2, 0, 3, 1, 4)
        before = x.clone()
        for query in (None, q):
            out = pa.rpc_attention(k, v, q=query, pursuit=Pursuit(4, 0.3))
            again = pa.rpc_attention(
                k.contiguous(), v.contiguous(), q=None if query is None else q.contiguous(), pursuit=Pursuit(4, 0.3)
            )
            torch.testing.assert_close(out, again)
        assert torch.equal(x, before)  # inputs are not changed in place

    def test_cleaned_takes_other_widths_and_other_numbers_of_queries(self, make):
        (k,), (v,), (q,) = make(H, N, D, count=1), make(H, N, 5, count=1), make(H, 4, D, count=1)
        key_mask = torch.arange(N) < 12
        options = dict(pursuit=Pursuit(3, 0.3, "cleaned"), q=q, key_mask=key_mask)
        out = pa.rpc_attention(k, v, **options)
        assert out.shape == (H, 4, 5)
        assert scale_error(out, pa.rpc_attention_reference(k, v, **options)) < 1e-12


@pytest.mark.parametrize("shape", [(0, 4), (0, 5, 4), (3, 0, 4), (0, 3, 5, 4), (2, 3, 0, 4), (2, 2, 0, 5, 4)])
def test_empty_batches_and_sequences(shape):
    k = torch.zeros(shape, requires_grad=True)
    out = pa.rpc_attention(k, k, pursuit=Pursuit(3))
    assert out.shape == shape
    out.sum().backward()
    assert pa.symmetric_attention(k, k).shape == shape


class TestDropout:
    def test_only_the_last_pass_drops(self, make):
        """With dropout 1 the last pass is zero; earlier passes have no dropout."""
        k, v = make(B, H, N, D)
        full = pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), dropout_p=1.0)
        assert (full == 0).all()
        draws = torch.stack([pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), dropout_p=0.3) for _ in range(3000)])
        # Dropout in one pass only is unbiased; in an earlier pass the softmax would bias the mean.
        expected = pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3))
        z = (draws.mean(0) - expected) / (draws.std(0) / math.sqrt(len(draws)))
        assert 0.8 < z.std() < 1.2
        assert z.abs().max() < 6  # 816 entries, each a standard normal


class TestTrace:
    @pytest.mark.parametrize("preset", PRESETS)
    def test_the_trace_says_what_happened(self, make, key_mask, preset):
        k, v = make(B, H, N, D)
        pursuit = Pursuit(3, 0.3, preset)
        out, trace = pa.rpc_attention(k, v, pursuit=pursuit, key_mask=key_mask, model_dim=WIDTH, return_trace=True)
        torch.testing.assert_close(out, pa.rpc_attention(k, v, pursuit=pursuit, key_mask=key_mask, model_dim=WIDTH))
        for values in (trace.residual, trace.sparsity, trace.entropy):
            assert values.shape == (3, B, H)
            assert torch.isfinite(values).all()
        assert ((trace.sparsity >= 0) & (trace.sparsity <= 1)).all()
        assert ((trace.entropy >= 0) & (trace.entropy <= math.log(N))).all()
        valid = key_mask.expand(B, H, N)[..., None]
        residual = ((k - trace.low_rank - trace.sparse) * valid).flatten(-2).norm(dim=-1)
        torch.testing.assert_close(trace.residual[-1], residual / (k * valid).flatten(-2).norm(dim=-1))

    def test_equal_keys_have_the_entropy_of_the_uniform_distribution(self):
        k = torch.ones(N, D, dtype=torch.float64)
        _, trace = pa.rpc_attention(k, torch.randn_like(k), pursuit=Pursuit(1, 4.0), return_trace=True)
        assert trace.entropy.item() == pytest.approx(math.log(N))
        assert trace.sparsity.item() == 0


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"iterations": 0}, "iterations is 0"),
            ({"iterations": 2.5}, "iterations is 2.5"),
            ({"lam": -1.0}, "lam is -1.0"),
            ({"lam": math.nan}, "lam is nan"),
            ({"preset": "papr"}, "'papr'; expected one of paper, authors"),
            ({"dual_sign": 0}, "dual_sign is 0"),
            ({"threshold": "lam"}, "threshold is 'lam'"),
            ({"mu": 0.0}, "mu is 0.0"),
            ({"output": "L"}, "output is 'L'"),
        ],
    )
    def test_pursuit_names_the_value_and_what_was_expected(self, fields, says):
        with pytest.raises(InputError, match=says):
            Pursuit(**fields)

    def test_pursuit_is_frozen_hashable_and_resolves_its_preset(self):
        pursuit = Pursuit(2, 1.0, "admm", dual_sign=-1)
        assert hash(pursuit) == hash(Pursuit(2, 1.0, "admm", dual_sign=-1))
        assert pursuit.resolve().dual_sign == -1
        assert replace(Pursuit(preset="paper"), preset="admm").resolve().dual_sign == 1
        with pytest.raises(AttributeError):
            pursuit.lam = 2.0

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (dict(v=torch.zeros(2, 3, 6, 4)), r"\(2, 3, 5, 4\) and v has \(2, 3, 6, 4\)"),
            (dict(v=torch.zeros(2, 3, 5, 6)), "k has width 4 and v has 6"),
            (dict(v=torch.zeros(2, 3, 5, 4).double()), "torch.float32 and v has torch.float64"),
            (dict(k=torch.zeros(2, 3, 5, 4, dtype=torch.int64)), "torch.int64"),
            (dict(q=torch.zeros(2, 1, 5, 4)), r"\(2, 3, 5, 4\) and q has \(2, 1, 5, 4\)"),
            (dict(q=torch.zeros(2, 3, 5, 2)), "must agree in the last dimension"),
            (dict(q=torch.zeros(2, 3, 7, 4)), "q has 7 rows and k has 5"),
            (dict(key_mask=torch.ones(2, 5, dtype=torch.bool)), r"\(2, 5\) and k has \(2, 3, 5, 4\)"),
            (dict(key_mask=torch.ones(3, 5, dtype=torch.bool)), r"\(3, 5\) and k has \(2, 3, 5, 4\)"),
            (dict(key_mask=torch.ones(2, 1, 5)), "torch.float32; expected torch.bool"),
            (dict(attn_mask=torch.ones(5, 4)), r"broadcast to \(2, 3, 5, 5\)"),
            (dict(attn_mask=torch.ones(5, 5, dtype=torch.int32)), "torch.int32"),
            (dict(pursuit=Pursuit(preset="authors")), "pass model_dim"),
            (dict(cache=pa.PursuitCache()), "needs is_causal=True"),
            (dict(attn_mask=torch.ones(5, dtype=torch.bool)), "two dimensions or more"),
            (dict(pursuit="paper"), "pursuit is 'paper'; expected a Pursuit"),
            (dict(dropout_p=1.5), "dropout_p is 1.5"),
            (dict(model_dim=-3), "model_dim is -3"),
            (dict(k=torch.zeros(2, 3, 5, 4).numpy()), "k is a ndarray"),
            (dict(v=torch.zeros(2, 3, 5, 4, device="meta")), "k is on cpu and v is on meta"),
            (dict(key_mask=torch.ones(2, 1, 5, dtype=torch.bool, device="meta")), "key_mask is on meta"),
        ],
    )
    def test_wrong_shapes_and_dtypes_are_named(self, change, says):
        k = torch.zeros(2, 3, 5, 4)
        options = dict(k=k, v=torch.zeros(2, 3, 5, 4), pursuit=Pursuit()) | change
        with pytest.raises(InputError, match=says):
            pa.rpc_attention(options.pop("k"), options.pop("v"), **options)

    def test_a_dtype_error_is_a_type_error_too(self):
        with pytest.raises(TypeError):
            pa.rpc_attention(torch.zeros(5, 4), torch.zeros(5, 4).double(), pursuit=Pursuit())
