"""The controls: reweighting of tokens against its formula and its objective, and the temperature of attention."""

import itertools
import math

import pytest
import torch

import principal_attention as pa
from principal_attention import InputError
from principal_attention.pursuit.controls import reweighted_attention
from principal_attention.sdpa import attention_matrix

KINDS = ("mcp", "huber", "l1")


def penalty(kind, gamma, t):
    """ρ(t) as ProTransformer defines it."""
    if kind == "l1":
        return t
    if kind == "huber":
        return torch.where(t < gamma, t**2 / 2, gamma * t - gamma**2 / 2)
    return torch.where(t < gamma, t - t**2 / (2 * gamma), torch.full_like(t, gamma / 2))


@pytest.fixture
def qkv(make):
    return [t.double() for t in make(2, 3, 9, 4, count=3)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_is_the_derivative_of_the_penalty(kind):
    t = torch.linspace(0.1, 5, 50, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(penalty(kind, 1.5, t).sum(), t)
    torch.testing.assert_close(pa.TokenReweighting(kind, gamma=1.5).weights(t), slope / (2 * t))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_loop_over_rows_of_the_paper(qkv, kind):
    q, k, v = qkv
    reweighting = pa.TokenReweighting(kind, 2, gamma=2.5)
    out = reweighted_attention(q, k, v, reweighting=reweighting)
    a = torch.softmax(q @ k.mT / 2, -1)
    for b in range(2):
        for h in range(3):
            for i in range(9):
                z = a[b, h, i] @ v[b, h]
                for _ in range(2):
                    t = torch.linalg.vector_norm(z - v[b, h], dim=-1)
                    w = reweighting.weights(t) * a[b, h, i]
                    z = w @ v[b, h] / w.sum() if w.sum() > 0 else z
                torch.testing.assert_close(out[b, h, i], z)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_lowers_the_objective_and_the_limit_is_a_minimum(qkv, kind):
    """Iteratively reweighted least squares is a majorisation: it descends, and ends where the gradient is zero."""
    q, k, v = qkv
    gamma, a = 6.0, attention_matrix(q, k)
    values = []

    def objective(z):
        t = torch.linalg.vector_norm(z.unsqueeze(-2) - v.unsqueeze(-3), dim=-1)
        return (a * penalty(kind, gamma, t)).sum((-1, -2))

    for n in (0, 1, 2, 5, 20, 400):
        z = reweighted_attention(q, k, v, reweighting=pa.TokenReweighting(kind, n, gamma))
        values.append(objective(z))
    for earlier, later in itertools.pairwise(values):
        assert (later <= earlier + 1e-9).all()
    z = z.requires_grad_()
    (slope,) = torch.autograd.grad(objective(z).sum(), z)
    # a minimum that is one of the values has no derivative there; a step towards it was at most ε of float64's root
    smooth = (torch.linalg.vector_norm(z.unsqueeze(-2) - v.unsqueeze(-3), dim=-1).min(-1).values > 1e-2).unsqueeze(-1)
    assert (slope * smooth).abs().max() < 1e-3


def test_limits_of_gamma(qkv):
    q, k, v = qkv
    run = lambda kind, gamma: reweighted_attention(q, k, v, reweighting=pa.TokenReweighting(kind, 3, gamma))  # noqa: E731
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(run("mcp", 1e9), run("l1", 4.0))
    torch.testing.assert_close(run("mcp", math.inf), run("l1", 4.0))
    torch.testing.assert_close(run("huber", 1e9), plain)  # all distances are in the quadratic part
    torch.testing.assert_close(run("huber", 1e-9), run("l1", 4.0))
    torch.testing.assert_close(run("mcp", 1e-9), plain)  # every value is too far: no step is taken
    none = pa.TokenReweighting("l1", 0)
    torch.testing.assert_close(reweighted_attention(q, k, v, reweighting=none), plain)


def test_mcp_gives_a_far_value_no_weight(qkv):
    q, k, v = qkv
    far, without = v.clone(), v.clone()
    far[..., 4, :] = 300.0
    mask = torch.ones(9, 9, dtype=torch.bool)
    mask[:, 4] = False
    rob = pa.TokenReweighting("mcp", 200, 400.0)
    ample = reweighted_attention(q, k, far, reweighting=rob)
    expected = reweighted_attention(q, k, without, reweighting=rob, mask=mask)
    near = (ample - expected).abs().amax(-1) < 1e-6
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, far)
    assert near.double().mean() > 0.8  # rows with most of their attention on the far value converge to that
    assert (plain - expected).abs().max() > 10


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_true(qkv, kind):
    q, k, v = (t[:1, :1, :5].clone().requires_grad_() for t in qkv)

    def run(q, k, v):
        return reweighted_attention(q, k, v, reweighting=pa.TokenReweighting(kind, 2, 5.0), is_causal=True)

    # the first causal row is its own value, at distance zero, where the bounded distance has no gradient
    assert torch.autograd.gradcheck(lambda *x: run(*x)[..., 1:, :], (q, k, v))


def test_a_single_value_and_a_row_without_keys_stay_finite(qkv):
    q, k, v = qkv
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    mask[3] = False
    for kind in KINDS:
        out = reweighted_attention(q, k, v, reweighting=pa.TokenReweighting(kind), mask=mask)
        torch.testing.assert_close(out[..., 0, :], v[..., 0, :])
        assert torch.equal(out[..., 3, :], torch.zeros_like(out[..., 3, :]))


def test_bad_input_is_refused():
    for make, says in (
        (lambda: pa.TokenReweighting("l2"), "kind is 'l2'; expected one of 'mcp', 'huber', 'l1'"),
        (lambda: pa.TokenReweighting("mcp", -1), "iterations is -1"),
        (lambda: pa.TokenReweighting("mcp", gamma=0), "gamma is 0"),
        (lambda: pa.Temperature(0), "value is 0"),
        (lambda: pa.Temperature(math.inf), "value is inf"),
        (lambda: pa.Temperature("cold"), "value is 'cold'"),
    ):
        with pytest.raises(InputError, match=says):
            make()
