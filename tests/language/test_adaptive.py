import pytest
import torch
from torch import nn

from principal_attention.errors import InputError
from principal_attention.language.adaptive import AdaptiveSoftmax


def pair(cutoffs, vocab=50, dim=12):
    """Our adaptive softmax, and torch's with the same weights; torch's tails have a projection, here the identity."""
    ours = AdaptiveSoftmax(vocab, dim, cutoffs).double()
    table = torch.randn(vocab, dim, dtype=torch.float64, requires_grad=True)
    nn.init.normal_(ours.bias)
    nn.init.normal_(ours.clusters.weight)
    nn.init.normal_(ours.clusters.bias)
    with torch.no_grad():
        ours.bias[cutoffs[0] :] = 0
    theirs = nn.AdaptiveLogSoftmaxWithLoss(dim, vocab, cutoffs, div_value=1.0, head_bias=True).double()
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat([table[: cutoffs[0]], ours.clusters.weight]))
        theirs.head.bias.copy_(torch.cat([ours.bias[: cutoffs[0]], ours.clusters.bias]))
        for tail, (low, high) in zip(theirs.tail, ours.tails, strict=True):
            tail[0].weight.copy_(torch.eye(dim))
            tail[1].weight.copy_(table[low:high])
    return ours, table, theirs


@pytest.mark.parametrize("cutoffs", [[20], [5, 30], [1, 2, 49]])
def test_it_is_torchs_own(cutoffs):
    ours, table, theirs = pair(cutoffs)
    hidden, targets = torch.randn(40, 12, dtype=torch.float64), torch.randint(50, (40,))
    torch.testing.assert_close(ours(hidden, table), theirs.log_prob(hidden))
    expected = theirs(hidden, targets)
    losses = ours.losses(hidden, table, targets)
    torch.testing.assert_close(-losses, expected.output)


def test_gradients_are_torchs_own():
    ours, table, theirs = pair([5, 30])
    hidden = torch.randn(40, 12, dtype=torch.float64)
    targets = torch.randint(50, (40,))
    mine, other = (hidden.clone().requires_grad_() for _ in range(2))
    ours.losses(mine, table, targets).mean().backward()
    theirs(other, targets).loss.backward()
    torch.testing.assert_close(mine.grad, other.grad)
    head = theirs.head.weight.grad
    torch.testing.assert_close(table.grad[:5], head[:5])
    torch.testing.assert_close(ours.clusters.weight.grad, head[5:])
    for tail, (low, high) in zip(theirs.tail, ours.tails, strict=True):
        torch.testing.assert_close(table.grad[low:high], tail[1].weight.grad)


def test_probabilities_sum_to_one_whatever_the_cutoffs():
    for cutoffs in ([], [10], [3, 9, 27]):
        softmax = AdaptiveSoftmax(50, 12, cutoffs)
        total = softmax(torch.randn(2, 7, 12), torch.randn(50, 12)).exp().sum(-1)
        torch.testing.assert_close(total, torch.ones(2, 7))


def test_half_precision_knows_probabilities_that_sum_to_one():
    head, table = AdaptiveSoftmax(500, 16, [20, 100]).bfloat16(), torch.randn(500, 16, dtype=torch.bfloat16)
    hidden, targets = torch.randn(30, 16, dtype=torch.bfloat16), torch.randint(500, (30,))
    found = head(hidden, table)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(30))
    torch.testing.assert_close(-found.gather(-1, targets[:, None])[:, 0], head.losses(hidden, table, targets))


def test_without_cutoffs_it_is_the_softmax():
    softmax, table, hidden = AdaptiveSoftmax(50, 12), torch.randn(50, 12), torch.randn(3, 12)
    torch.testing.assert_close(softmax(hidden, table), (hidden @ table.T).log_softmax(-1))


@pytest.mark.parametrize("cutoffs", [[0], [60], [50], [10, 10], [20, 10]])
def test_cutoffs_must_grow_below_the_vocabulary(cutoffs):
    with pytest.raises(InputError, match="expected increasing numbers below it"):
        AdaptiveSoftmax(50, 12, cutoffs)
