import pytest
import torch

from principal_attention.errors import InputError, LeakWarning
from principal_attention.language.decode import Sampling, generate, stream
from principal_attention.language.vocabulary import count_words, encode, read_tokenizer
from small_models import KINDS
from small_texts import write_letters

SAMPLINGS = {"greedy": Sampling(0.0), "drawn": Sampling(1.0, seed=3), "top p": Sampling(0.8, 0.7, seed=4)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("how", SAMPLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_cached_is_uncached_token_by_token(kind, how, dtype, build):
    """Also beyond the end of the context, where both continue from its second half."""
    model = build(kind).to(dtype)
    found = [list(generate(model, [5, 9, 2], 60, SAMPLINGS[how], cached=cached)) for cached in (True, False)]
    assert found[0] == found[1]
    assert len(found[0]) == 60


def test_rounding_does_not_change_a_draw():
    """A cache changes rounding in the last bits, so that equally likely tokens can change places."""
    log_probs = torch.randn(50_000).mul(0.1).log_softmax(-1)
    rounded = log_probs + 1e-6 * torch.randn(50_000)
    assert not torch.equal(log_probs.argsort(), rounded.argsort())
    for step in range(20):
        for how in (Sampling(1.0, seed=step), Sampling(0.7, 0.9, seed=step)):
            assert how.draw(log_probs, step) == how.draw(rounded, step)


def test_each_token_is_drawn_from_what_the_text_before_it_makes_likely(build):
    model, text = build("rpc symmetric").double(), [5, 9, 2]
    for token in generate(model, [5, 9, 2], 20, Sampling(0.0)):
        with torch.no_grad():
            assert token == int(model(torch.tensor([text]))[0, -1].argmax())
        text.append(token)


@pytest.fixture
def reads(monkeypatch):
    """reads(model): list to which every call of the model appends its number of tokens."""

    def watch(model):
        found, embed = [], model.embed
        monkeypatch.setattr(model, "embed", lambda tokens: found.append(tokens.shape[1]) or embed(tokens))
        return found

    return watch


def test_each_token_is_read_once_until_the_context_is_full(build, reads):
    model = build("rpc symmetric", context=8)
    found = reads(model)
    list(generate(model, [5, 9, 2], 11, Sampling(0.0)))
    assert found == [3, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1]  # then half of the context is read again


def test_a_model_with_a_global_mu_reads_everything_again(build, reads):
    with pytest.warns(LeakWarning):
        model = build("rpc", mu="global")
    found = reads(model)
    list(generate(model, [1, 2], 5, Sampling(0.0)))
    assert found == [2, 3, 4, 5, 6]


def test_a_long_prompt_is_cut_to_the_context(build):
    model = build("learned positions").double()
    long = [i % 60 for i in range(100)]
    assert list(generate(model, long, 5, Sampling(0.0))) == list(generate(model, long[-24:], 5, Sampling(0.0)))


def test_draws_follow_the_probabilities():
    """The share of 3,000 draws has a standard deviation of at most 0.009; 0.04 is more than four of them."""
    log_probs = torch.tensor([0.1, 0.6, 0.3]).log()
    count = torch.bincount(torch.tensor([Sampling(1.0).draw(log_probs, i) for i in range(3000)]), minlength=3) / 3000
    torch.testing.assert_close(count, torch.tensor([0.1, 0.6, 0.3]), rtol=0, atol=0.04)
    sharp = torch.bincount(torch.tensor([Sampling(0.5).draw(log_probs, i) for i in range(3000)]), minlength=3) / 3000
    torch.testing.assert_close(sharp, torch.tensor([0.01, 0.36, 0.09]) / 0.46, rtol=0, atol=0.04)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.5, {1}), (0.6, {1}), (0.61, {1, 2}), (0.95, {0, 1, 2}), (1.0, {0, 1, 2})]
)
def test_top_p_keeps_the_fewest_that_reach_it(top_p, kept):
    log_probs = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64).log()
    assert {Sampling(1.0, top_p).draw(log_probs, i) for i in range(300)} == kept


def test_seeds_differ_and_repeat(build):
    model = build()
    one, two, again = (list(generate(model, [1], 20, Sampling(1.0, seed=seed))) for seed in (0, 1, 0))
    assert one == again != two


@pytest.mark.parametrize(
    "wrong", [dict(temperature=-1), dict(temperature=float("inf")), dict(top_p=0), dict(top_p=1.5)]
)
def test_settings_are_checked(wrong):
    with pytest.raises(InputError, match="expected"):
        Sampling(**wrong)


def test_extreme_settings_still_draw(build):
    log_probs = torch.tensor([0.1, 0.6, 0.3]).log()
    assert Sampling(1e-310, seed=10**30).draw(log_probs, 0) == 1
    with pytest.raises(InputError, match="probabilities are NaN"):
        Sampling(1.0).draw(log_probs * float("nan"), 0)


def test_an_empty_prompt_is_refused(build):
    with pytest.raises(InputError, match="the prompt has no token"):
        next(generate(build(), [], 3))


def test_pieces_join_to_the_text():
    words = count_words(["a b c d e <unk>"])
    (prompt, rest) = encode(words, ["a b", "c e d"])
    assert list(stream(words, prompt, iter(rest))) == [" c", " e", " d"]
    assert list(stream(words, prompt, iter([1, *rest]))) == ["\n", "c", " e", " d"]
    long = rest * 40  # only the last tokens are read again
    assert "".join(stream(words, prompt, iter(long))) == " c e d" * 40


def test_a_letter_of_several_bytes_comes_whole(tmp_path):
    bytes_ = read_tokenizer(write_letters(tmp_path))
    prompt, rest = encode(bytes_, ["x", "猫é"])
    assert len(rest) == 5
    assert list(stream(bytes_, prompt, iter(rest))) == ["猫", "é"]
    assert "".join(stream(bytes_, prompt, iter(rest[:4]))) == "猫\ufffd"  # it ends within a character
