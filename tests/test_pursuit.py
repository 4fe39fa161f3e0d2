"""RPC-Attention against its plain reference, and the identities the readings must satisfy."""

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


def masks(which: str) -> dict:
    random = torch.Generator().manual_seed(7)
    key_mask = torch.rand(B, 1, N, generator=random) > 0.3
    options = {
        "none": {},
        "padded": {"key_mask": key_mask},
        "causal": {"is_causal": True},
        "padded causal": {"key_mask": key_mask, "is_causal": True},
        "boolean": {"attn_mask": torch.rand(N, N, generator=random) > 0.2},
        "bias causal padded": {
            "attn_mask": torch.randn(H, N, N, generator=random, dtype=torch.float64),
            "key_mask": key_mask,
            "is_causal": True,
        },
    }
    return options[which]


MASKS = ("none", "padded", "causal", "padded causal", "boolean", "bias causal padded")


def scale_error(x, y):
    return ((x - y).abs().max() / y.abs().max()).item()


@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("preset", PRESETS)
def test_fast_path_equals_the_reference_with_and_without_gradients(make, preset, which):
    k, v, q = make(B, H, N, D, count=3)
    for n, lam, query in product(range(1, 7), (0.2, 1.0, 4.0, math.inf), (None, q)):
        options = dict(pursuit=Pursuit(n, lam, preset), q=query, model_dim=WIDTH, **masks(which))
        expected = pa.rpc_attention_reference(k, v, **options)
        assert torch.isfinite(expected).all()
        # 1e-10 of the output's scale: sigma = −1 doubles rounding at every iteration.
        assert scale_error(pa.rpc_attention(k, v, **options), expected) < 1e-10
        tracked = k.clone().requires_grad_()
        assert scale_error(pa.rpc_attention(tracked, v, **options), expected) < 1e-10


@pytest.mark.parametrize(
    "fields",
    [
        {"dual_sign": +1},
        {"threshold": "lam*mu"},
        {"mu_dim": "model"},
        {"mu": 0.7},
        {"mu": 0.7, "threshold": "lam*mu"},
        {"values": "key"},
        {"output": "cleaned_keys"},
        {"values": "key", "output": "cleaned_keys"},
        {"preset": "cleaned", "values": "learned"},
        {"preset": "cleaned", "output": "low_rank"},
        {"preset": "cleaned", "dual_sign": -1},
    ],
)
def test_every_field_set_by_hand_is_what_the_reference_does(make, fields):
    k, v, q = make(B, H, N, D, count=3)
    for n, query in product((1, 2, 4), (None, q)):
        options = dict(pursuit=Pursuit(n, 0.4, **fields), q=query, model_dim=WIDTH)
        expected = pa.rpc_attention_reference(k, v, **options)
        assert scale_error(pa.rpc_attention(k, v, **options), expected) < 1e-10


def test_fields_change_the_function(make):
    """Each switch is a different reading, so none may be ignored."""
    k, v = make(B, H, N, D)
    base = Pursuit(3, 0.3)
    outputs = [
        pa.rpc_attention(k, v, pursuit=replace(base, **fields), model_dim=WIDTH)
        for fields in ({}, {"dual_sign": 1}, {"threshold": "lam*mu"}, {"mu_dim": "model"}, {"mu": 3.0},
                       {"values": "key"}, {"output": "cleaned_keys"})
    ]  # fmt: skip
    for i, a in enumerate(outputs):
        for b in outputs[:i]:
            assert scale_error(a, b) > 1e-3


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("which", MASKS)
@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_equal_the_references(make, preset, which, recompute):
    for n, lam, query in product((1, 2, 4), (0.3, math.inf), (False, True)):
        tensors = [t.requires_grad_() for t in make(B, H, N, D, count=3)]
        options = dict(pursuit=Pursuit(n, lam, preset), model_dim=WIDTH, **masks(which))
        options["q"] = tensors[2] if query else None
        inputs = tensors if query else tensors[:2]
        fast = torch.autograd.grad(
            pa.rpc_attention(*tensors[:2], recompute=recompute, **options).square().sum(), inputs
        )
        plain = torch.autograd.grad(pa.rpc_attention_reference(*tensors[:2], **options).square().sum(), inputs)
        for f, p in zip(fast, plain, strict=True):
            assert scale_error(f, p) < 1e-9  # one more matrix product than the outputs


@pytest.mark.parametrize("recompute", [False, True])
def test_a_learned_bias_gets_its_gradient_from_every_pass(make, recompute):
    k, v = make(H, N, D)
    grads = []
    for function in (pa.rpc_attention, pa.rpc_attention_reference):
        bias = torch.zeros(H, N, N, dtype=torch.float64, requires_grad=True)
        options = {"recompute": recompute} if function is pa.rpc_attention else {}
        out = function(k, v, pursuit=Pursuit(3, 0.3), attn_mask=bias, **options)
        grads.append(torch.autograd.grad(out.square().sum(), bias)[0])
    assert scale_error(*grads) < 1e-9


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "padded causal"])
@pytest.mark.parametrize("preset", PRESETS)
def test_gradcheck(make, preset, masked):
    inputs = [t.requires_grad_() for t in make(2, 1, 5, 3, count=3)]
    key_mask = torch.tensor([[[True, True, False, True, True]], [[False, True, True, True, False]]])
    for n, query in product((1, 3), (False, True)):
        options = dict(pursuit=Pursuit(n, 0.3, preset), model_dim=6, is_causal=masked)
        options["key_mask"] = key_mask if masked else None

        def function(a, b, c, query=query, options=options):
            return pa.rpc_attention(a, b, q=c if query else None, **options)

        assert torch.autograd.gradcheck(function, inputs)


def test_no_gradient_goes_through_mu_when_told_so(make):
    k, v = make(N, D)
    through, cut = (
        torch.autograd.grad(
            pa.rpc_attention(t, v, pursuit=Pursuit(2, 0.2, mu_grad=grad)).square().sum(), t
        )[0]
        for grad, t in ((True, k.clone().requires_grad_()), (False, k.clone().requires_grad_()))
    )  # fmt: skip
    assert scale_error(cut, through) > 1e-3
    tau = 4 * 0.2 * k.abs().mean()
    fixed = k.clone().requires_grad_()
    (given,) = torch.autograd.grad(
        pa.rpc_attention(fixed, v, pursuit=Pursuit(2, 0.2, mu=0.2 / tau.item())).square().sum(), fixed
    )
    torch.testing.assert_close(cut, given)


class TestIdentities:
    """Facts of the algorithm, each against torch's own attention rather than our reference."""

    def test_one_iteration_is_symmetric_attention_on_clamped_keys(self, make):
        k, v = make(B, H, N, D)
        for preset in ("paper", "admm", "cleaned"):
            tau = 4 * 0.3 * k.abs().mean((-2, -1), keepdim=True)
            keys = k.clamp(-tau, tau)
            assert (keys != k).any()
            out = pa.rpc_attention(k, v, pursuit=Pursuit(1, 0.3, preset))
            torch.testing.assert_close(out, F.scaled_dot_product_attention(keys, keys, v))

    @pytest.mark.parametrize("preset", PRESETS)
    def test_without_a_threshold_one_iteration_is_symmetric_attention(self, make, preset):
        k, v, q = make(B, H, N, D, count=3)
        plain = Pursuit(1, math.inf, preset)
        torch.testing.assert_close(pa.rpc_attention(k, v, pursuit=plain), F.scaled_dot_product_attention(k, k, v))
        torch.testing.assert_close(pa.rpc_attention(k, v, q=q, pursuit=plain), F.scaled_dot_product_attention(q, k, v))
        # A threshold that is merely large does the same without the short cut.
        large = Pursuit(1, 1e9, preset, threshold="lam/mu")
        torch.testing.assert_close(
            pa.rpc_attention(k, v, pursuit=large, model_dim=WIDTH), F.scaled_dot_product_attention(k, k, v)
        )

    @pytest.mark.parametrize("n", range(1, 7))
    @pytest.mark.parametrize("lam", [math.inf, 1e6])
    def test_cleaned_without_a_threshold_is_plain_attention_for_any_n(self, make, n, lam):
        k, v, q = make(B, H, N, D, count=3)
        pursuit = Pursuit(n, lam, "cleaned")
        for query in (None, q):
            expected = F.scaled_dot_product_attention(k if query is None else q, k, v)
            torch.testing.assert_close(pa.rpc_attention(k, v, q=query, pursuit=pursuit), expected)

    def test_authors_is_the_printed_algorithm_with_lam_times_mu_and_the_models_width(self, make):
        k, v = make(B, H, N, D)
        lam, width = 0.05, WIDTH
        low_rank = dual = torch.zeros_like(k)
        mu = N * width / (4 * k.abs().sum((-2, -1), keepdim=True))
        for _ in range(4):
            error = k - low_rank + dual / mu
            sparse = error.sign() * (error.abs() - lam * mu).clamp(min=0)
            keys = k - sparse - dual / mu
            low_rank = torch.softmax(keys @ keys.mT / math.sqrt(D), -1) @ v
            dual = dual + mu * (k - low_rank - sparse)
        assert sparse.count_nonzero()
        out = pa.rpc_attention(k, v, pursuit=Pursuit(4, lam, "authors"), model_dim=width)
        assert scale_error(out, low_rank) < 1e-12

    def test_scaling_keys_values_and_temperature_scales_the_output(self, make):
        """tau = 4·lam·mean|K| follows the keys' scale."""
        k, v = make(B, H, N, D)
        for preset in ("paper", "admm", "cleaned"):
            pursuit = Pursuit(3, 0.3, preset)
            out = pa.rpc_attention(k, v, pursuit=pursuit)
            scaled = pa.rpc_attention(10 * k, 10 * v, pursuit=pursuit, scale=D**-0.5 / 100)
            assert scale_error(scaled, 10 * out) < 1e-12

    def test_the_second_pass_of_the_paper_forgets_the_keys(self, make):
        """sigma = −1 makes K cancel: K' = L₁ + S₁ − S₂, here with nothing shrunk just L₁."""
        k, v = make(N, D)
        first = F.scaled_dot_product_attention(k[None], k[None], v[None])[0]
        second = F.scaled_dot_product_attention(first[None], first[None], v[None])[0]
        torch.testing.assert_close(pa.rpc_attention(k, v, pursuit=Pursuit(2, math.inf)), second)


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
    def test_padded_tokens_change_nothing_bit_for_bit(self, make, preset, causal):
        k, v, q = make(B, H, N, D, count=3)
        key_mask = masks("padded")["key_mask"]
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
        """A mask hides keys from passes; only is_causal makes mu a prefix. Documented, so pinned here."""
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
        assert torch.equal(x, before)  # the buffers are ours, the inputs are not

    def test_cleaned_takes_other_widths_and_other_numbers_of_queries(self, make):
        (k,), (v,), (q,) = make(H, N, D, count=1), make(H, N, 5, count=1), make(H, 4, D, count=1)
        key_mask = torch.arange(N) < 12
        options = dict(pursuit=Pursuit(3, 0.3, "cleaned"), q=q, key_mask=key_mask)
        out = pa.rpc_attention(k, v, **options)
        assert out.shape == (H, 4, 5)
        assert scale_error(out, pa.rpc_attention_reference(k, v, **options)) < 1e-12


class TestDropout:
    def test_only_the_last_pass_drops(self, make):
        """With every weight dropped the last pass is zero; earlier ones must not have been touched."""
        k, v = make(B, H, N, D)
        full = pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), dropout_p=1.0)
        assert (full == 0).all()
        draws = torch.stack([pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), dropout_p=0.3) for _ in range(3000)])
        # Dropout in one pass only is unbiased; in an earlier one the softmax would bend the mean.
        expected = pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3))
        z = (draws.mean(0) - expected) / (draws.std(0) / math.sqrt(len(draws)))
        assert 0.8 < z.std() < 1.2
        assert z.abs().max() < 6  # 816 entries, each a standard normal


class TestTrace:
    @pytest.mark.parametrize("preset", PRESETS)
    def test_the_trace_says_what_happened(self, make, preset):
        k, v = make(B, H, N, D)
        key_mask = masks("padded")["key_mask"]
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
            (dict(attn_mask=torch.ones(5, 4)), r"broadcasts to \(2, 3, 5, 5\)"),
            (dict(attn_mask=torch.ones(5, 5, dtype=torch.int32)), "torch.int32"),
            (dict(pursuit=Pursuit(preset="authors")), "pass model_dim"),
            (dict(cache=pa.PursuitCache()), "needs is_causal=True"),
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
