import math

import pytest
import torch

from principal_attention.errors import InputError
from principal_attention.language.config import LanguageConfig
from principal_attention.language.model import LanguageModel
from principal_attention.tasks.language_model.perplexity import Windows, perplexity, token_losses

CONTEXT = 8


@pytest.fixture
def model():
    rpc = {"form": "query", "layers": {"0": {"iterations": 3, "lam": 0.5, "preset": "paper"}}}
    config = dict(vocab_size=40, context=CONTEXT, depth=2, embed_dim=16, num_heads=2, inner_dim=24, cutoffs=[10, 20])
    made = LanguageModel(LanguageConfig(**config, attention="symmetric", rpc=rpc)).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def by_definition(model, tokens, stride):
    """Reference with one window at a time: the first window counts every position, each later one its last `stride`."""
    inputs, targets, losses = tokens[:-1], tokens[1:], []
    end = min(CONTEXT, len(inputs))
    with torch.no_grad():
        found = model(inputs[None, :end])[0]
        losses += [-found[i, targets[i]] for i in range(end)]
        while end < len(inputs):
            moved = min(stride, len(inputs) - end)
            start = end - CONTEXT + stride
            window = inputs[start : end + moved]
            found = model(window[None])[0]
            losses += [-found[len(window) - moved + i, targets[end + i]] for i in range(moved)]
            end += moved
    return torch.stack(losses)


@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("length", [2, 5, 9, 10, 60])
def test_windows_together_are_windows_one_by_one(model, length, stride):
    tokens = torch.randint(40, (length,))
    protocol = Windows("sliding", CONTEXT, stride)
    expected = by_definition(model, tokens, stride)
    for together in (1, 7, 64):
        found = token_losses(model, tokens[:-1], tokens[1:], range(length - 1), protocol, together=together)
        torch.testing.assert_close(found, expected)  # in float64: far closer than 1e-6


def test_any_part_of_a_text_can_be_asked_for(model):
    tokens = torch.randint(40, (60,))
    protocol = Windows("sliding", CONTEXT, 3)
    whole = token_losses(model, tokens[:-1], tokens[1:], range(59), protocol)
    parts = [
        token_losses(model, tokens[:-1], tokens[1:], range(a, b), protocol) for a, b in ((0, 5), (5, 33), (33, 59))
    ]
    torch.testing.assert_close(torch.cat(parts), whole)
    some = token_losses(model, tokens[:-1], tokens[1:], [40, 3, 17], protocol)
    torch.testing.assert_close(some, whole[[40, 3, 17]])


def test_the_vocabulary_is_asked_only_at_counted_positions(model, monkeypatch):
    rows, losses = [], model.head.losses
    monkeypatch.setattr(model.head, "losses", lambda hidden, *rest: rows.append(len(hidden)) or losses(hidden, *rest))
    tokens = torch.randint(40, (61,))
    token_losses(model, tokens[:-1], tokens[1:], range(60), Windows("sliding", CONTEXT))
    assert sum(rows) == 60


def test_segments_are_read_from_their_beginning(model):
    tokens = torch.randint(40, (30,))
    found = token_losses(model, tokens[:-1], tokens[1:], range(29), Windows("segments", CONTEXT))
    with torch.no_grad():
        parts = [-model(tokens[None, i : i + CONTEXT])[0] for i in range(0, 29, CONTEXT)]
    expected = torch.cat(parts)[torch.arange(29), tokens[1:]]
    torch.testing.assert_close(found, expected)


def test_what_follows_is_never_seen(model):
    """The loss of a token does not depend on the tokens after it."""
    tokens = torch.randint(40, (40,))
    changed = torch.cat([tokens[:21], (tokens[21:] + 1) % 40])
    for protocol in (Windows("sliding", CONTEXT), Windows("sliding", CONTEXT, 5), Windows("segments", CONTEXT)):
        one, other = (token_losses(model, t[:-1], t[1:], range(20), protocol) for t in (tokens, changed))
        torch.testing.assert_close(one, other)


def test_only_the_papers_windows_bear_its_name():
    assert Windows("sliding", 256).name == "sliding"
    assert Windows("sliding", 256, 32).name == "sliding, stride 32"
    assert Windows("segments", 256).name == "segments"


@pytest.mark.parametrize(("wrong", "said"), [
    (dict(kind="rolling"), "expected one of sliding, segments"),
    (dict(stride=0), "expected from 1 to the context of 256"),
    (dict(stride=257), "expected from 1 to the context of 256"),
    (dict(kind="segments", stride=4), "have no stride"),
])  # fmt: skip
def test_protocols_are_checked(wrong, said):
    with pytest.raises(InputError, match=said):
        Windows(**wrong)


def test_perplexity_of_a_hopeless_model_is_infinite():
    assert perplexity(math.log(50)) == pytest.approx(50)
    assert perplexity(1e4) == math.inf
