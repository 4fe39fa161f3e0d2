"""RPC-Attention compared with its plain reference, and identities of the presets."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F

import principal_attention as pa
from principal_attention import Pursuit

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
    """Each field of `Pursuit` changes the output."""
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
    """Identities of the algorithm, compared with torch's attention instead of our reference."""

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
