"""Surrogate gradients: the same outputs with a different backward pass, or those of an infinite threshold."""

import math

import pytest
import torch

import principal_attention as pa
from principal_attention.errors import InputError
from principal_attention.pursuit.surrogate import active, straight_clip, surrogate_gradients


@pytest.mark.parametrize("preset", pa.PRESETS)
@pytest.mark.parametrize("form", ["symmetric", "query"])
def test_straight_has_the_same_outputs_and_another_gradient(make, preset, form):
    k, v, q = make(2, 3, 7, 4, count=3)
    k.requires_grad_()
    options = dict(pursuit=pa.Pursuit(3, 0.1, preset, mu=1.0), q=q if form == "query" else None, model_dim=12)
    true = pa.rpc_attention(k, v, **options)
    with surrogate_gradients("straight"):
        straight = pa.rpc_attention(k, v, **options)
    torch.testing.assert_close(straight, true, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(out.square().sum(), k)[0] for out in (true, straight)]
    assert (gradients[0] - gradients[1]).norm() > 0.01 * gradients[0].norm()


def test_cut_keys_have_no_gradient_but_a_straight_one(make):
    """With one iteration the keys are clip(K, τ): beyond the threshold the true gradient is zero."""
    k, v = make(1, 5, 4)
    k.requires_grad_()
    options = dict(pursuit=pa.Pursuit(1, 0.5, mu=1.0))
    cut = k.abs() > 0.5
    true = torch.autograd.grad(pa.rpc_attention(k, v, **options).square().sum(), k)[0]
    with surrogate_gradients("straight"):
        straight = torch.autograd.grad(pa.rpc_attention(k, v, **options).square().sum(), k)[0]
    assert cut.any()
    assert (true[cut] == 0).all()
    assert (straight[cut] != 0).all()
    torch.testing.assert_close(straight[~cut], true[~cut])


@pytest.mark.parametrize("preset", pa.PRESETS)
def test_infinite_is_the_model_that_cuts_nothing(make, preset):
    k, v = make(2, 3, 7, 4)
    pursuit = pa.Pursuit(3, 0.1, preset)
    with surrogate_gradients("infinite"):
        found = pa.rpc_attention(k, v, pursuit=pursuit, model_dim=12)
    assert found.equal(pa.rpc_attention(k, v, pursuit=pa.Pursuit(3, math.inf, preset), model_dim=12))


def test_it_ends_with_its_block_and_nests():
    assert active() is None
    with surrogate_gradients("straight"):
        with surrogate_gradients("infinite"):
            assert active() == "infinite"
        assert active() == "straight"
        with pytest.raises(InputError, match="expected one of straight, infinite"), surrogate_gradients("bent"):
            pass
    assert active() is None


def test_the_straight_clip():
    x = torch.tensor([-2.0, 0.5, 3.0], requires_grad=True)
    straight_clip(x, torch.tensor(1.0)).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert straight_clip(x, torch.tensor(1.0)).tolist() == [-1.0, 0.5, 1.0]
