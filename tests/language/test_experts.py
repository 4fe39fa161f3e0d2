import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from principal_attention.errors import InputError
from principal_attention.language.experts import SparseExperts


def expert(layer, number, x):
    inner = F.linear(x, layer.up[number], layer.up_bias[number]).relu()
    return F.linear(inner, layer.down[number], layer.down_bias[number])


def naive(layer, x):
    """Reference with loops over tokens and experts."""
    rows = []
    for token in x.reshape(-1, x.shape[-1]):
        scores = layer.router(token)
        top = scores.argsort(descending=True)[: layer.top_k]
        weights = scores[top].softmax(-1) if layer.top_k > 1 else scores.softmax(-1)[top]
        rows.append(sum(w * expert(layer, int(e), token) for w, e in zip(weights, top, strict=True)))
    return torch.stack(rows).reshape(x.shape)


def test_with_every_expert_it_is_the_weighted_sum_of_all():
    layer, x = SparseExperts(12, 20, 6, top_k=6).double(), torch.randn(2, 9, 12, dtype=torch.float64)
    weights = layer.router(x).softmax(-1)
    expected = sum(weights[..., e, None] * expert(layer, e, x) for e in range(6))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_outputs_and_gradients_are_those_of_a_loop_over_tokens(top_k):
    layer = SparseExperts(12, 20, 6, top_k).double()
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    found, weight = [], torch.randn_like(x)
    for compute in (layer, lambda given: naive(layer, given)):
        given = x.clone().requires_grad_()
        layer.zero_grad()
        out = compute(given)
        (out * weight).sum().backward()
        found.append([out.detach(), given.grad, *(p.grad.clone() for p in layer.parameters())])
        assert layer.router.weight.grad.abs().max() > 1e-3  # the router learns, with a single expert a token too
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_only_the_chosen_experts_are_computed():
    """Multiplications are those of two dense layers, the router, and at most one block of rows per expert."""
    dim, inner, count = 32, 64, 512
    layer, x = SparseExperts(dim, inner, 16), torch.randn(count, dim)
    with FlopCounterMode(display=False) as flops, torch.no_grad():
        layer(x)
    two, router, padding = 2 * count * 4 * dim * inner, count * 2 * dim * 16, 16 * 15 * 4 * dim * inner
    assert two + router <= flops.get_total_flops() <= two + router + padding


def test_masked_tokens_go_to_no_expert():
    layer, x = SparseExperts(12, 20, 6).train(), torch.randn(2, 9, 12)
    mask = torch.arange(9) < torch.tensor([[9], [4]])
    out = layer(x, mask)
    assert int(layer.load.sum()) == 2 * 13
    torch.testing.assert_close(out[1, :4], layer(x[1:, :4])[0])
    assert not out[1, 4:].any()
    assert not layer(x, torch.zeros(2, 9, dtype=torch.bool)).any()


def test_dropout_is_between_the_two_products_of_an_expert():
    """With dropout 0, and with dropout 1, where only the bias of the second layer remains."""
    layer, x = SparseExperts(12, 20, 6, dropout=1.0), torch.randn(9, 12)
    torch.testing.assert_close(layer.eval()(x), naive(layer, x))
    weights, chosen = layer.router(x).topk(2, -1)
    bias = (weights.softmax(-1)[..., None] * layer.down_bias[chosen]).sum(1)
    torch.testing.assert_close(layer.train()(x), bias)


def test_balance_is_one_for_an_even_load_and_more_for_an_uneven_one():
    layer = SparseExperts(6, 8, 6, top_k=1).train()
    with torch.no_grad():
        layer.router.weight.copy_(torch.eye(6))
        layer.router.bias.zero_()
    layer(torch.eye(6) * 20)
    assert layer.balance_loss.item() == pytest.approx(1, abs=1e-6)
    layer(torch.eye(6)[:1].expand(6, 6) * 20)
    assert layer.balance_loss.item() == pytest.approx(6, abs=1e-5)


def test_statistics_are_of_the_tokens_since_the_last_ones():
    layer = SparseExperts(6, 8, 6, top_k=1).train()
    assert layer.statistics() == {}
    with torch.no_grad():
        layer.router.weight.copy_(torch.eye(6))
        layer.router.bias.zero_()
    layer(torch.eye(6)[:3] * 20)
    found = layer.statistics()
    assert found["busiest"] == pytest.approx(2)
    assert found["idlest"] == 0
    assert 0 < found["entropy"] < 1
    assert layer.statistics() == {}
    layer.eval()(torch.eye(6))
    assert layer.statistics() == {}


def test_more_experts_than_there_are_cannot_be_asked():
    with pytest.raises(InputError, match="top_k is 3; expected from 1 to the 2 experts"):
        SparseExperts(6, 8, 2, top_k=3)
