import copy
import math

import pytest
import torch

import principal_attention as pa
from principal_attention.errors import InputError, LeakWarning
from principal_attention.language.config import NAMES, LanguageConfig
from principal_attention.language.load import build_language_model
from principal_attention.language.model import LanguageModel, sinusoids
from small_models import KINDS, PURSUIT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_no_future_token_changes_a_past_log_probability(kind, dtype, build, tokens):
    """Bit for bit, although later tokens change the batches of the experts."""
    model = build(kind).to(dtype)
    with torch.no_grad():
        before = model(tokens)
        for first in range(1, 24):
            changed = tokens.clone()
            changed[:, first:] = (changed[:, first:] + 1 + first) % 60
            after = model(changed)
            assert torch.equal(after[:, :first], before[:, :first]), f"tokens from {first} on reach back"
            assert not torch.equal(after[:, first:], before[:, first:])


def test_the_global_mu_lets_the_future_through(build, tokens):
    with pytest.warns(LeakWarning, match="see later tokens through mu"):
        model = build("rpc symmetric", mu="global").double()
    changed = tokens.clone()
    changed[:, 12:] = (changed[:, 12:] + 5) % 60
    with torch.no_grad():
        moved = (model(changed) - model(tokens))[:, :12].abs().max()
    assert moved > 1e-4  # of log-probabilities, where rounding is 1e-14


def test_the_global_mu_is_warned_of_where_it_is_used(build):
    model = build(mu="global")  # no pursuit, no leak: warnings are errors here
    with pytest.warns(LeakWarning) as told:
        pa.robustify(model, pursuit=pa.Pursuit(2, 1.0))
    assert len(told) == 1
    with pytest.warns(LeakWarning) as told:
        type(model)(model.config)
    assert len(told) == 1


def test_the_global_mu_changes_only_pursuits(build, tokens):
    """Without an RPC layer the triangular mask is causal attention."""
    with torch.no_grad():
        torch.testing.assert_close(build("symmetric", mu="global")(tokens), build("symmetric")(tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_cached_tokens_are_what_the_whole_text_gives(kind, build, tokens):
    model = build(kind).double()
    with torch.no_grad():
        whole = model(tokens)
        caches = model.new_caches()
        parts = [model(tokens[:, a:b], caches=caches) for a, b in ((0, 7), (7, 8), (8, 20), (20, 24))]
    torch.testing.assert_close(
        torch.cat(parts, 1), whole, rtol=0, atol=1e-9
    )  # products of other shapes round otherwise


@pytest.mark.parametrize("kind", [*KINDS, "global"])
def test_padding_after_a_text_changes_nothing_in_it(kind, build, tokens):
    if kind == "global":
        with pytest.warns(LeakWarning):
            model = build("rpc symmetric", mu="global").double()
    else:
        model = build(kind).double()
    mask = torch.arange(24) < torch.tensor([[24], [9], [1]])
    with torch.no_grad():
        together = model(tokens, key_mask=mask)
        for row, length in enumerate((24, 9, 1)):
            alone = model(tokens[row : row + 1, :length])
            torch.testing.assert_close(together[row, :length], alone[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_give_what_the_log_probabilities_say(kind, build, tokens):
    model, targets = build(kind).double(), tokens.flip(0)
    with torch.no_grad():
        expected = -model(tokens).gather(-1, targets[..., None]).squeeze(-1)
        torch.testing.assert_close(model(tokens, targets), expected)


def test_every_weight_learns(build, tokens):
    """In a model with all options every parameter has a gradient."""
    model = build("experts with rpc", balance=0.1).train()
    targets = (torch.arange(3 * 24) % 60).reshape(3, 24)  # one of every cluster
    (model(tokens, targets).mean() + model.balance_loss()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_a_robustified_model_is_rebuilt_from_its_config(build, tokens):
    model = pa.robustify(build("symmetric"), pursuit=pa.Pursuit(3, 0.5, "admm"), layers=[1])
    again = LanguageModel(LanguageConfig.model_validate_json(model.config.model_dump_json())).eval()
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(again(tokens), model(tokens))
        assert not torch.equal(model(tokens), build("symmetric")(tokens))
        assert torch.equal(pa.restore(model)(tokens), build("symmetric")(tokens))
    assert model.config.rpc is None


def test_positions_are_sines_and_cosines():
    table = sinusoids(5, 3, 8)
    for row, place in enumerate((5, 6, 7)):
        for pair in range(4):
            angle = place / 10_000 ** (2 * pair / 8)
            assert table[row, pair] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[row, 4 + pair] == pytest.approx(math.cos(angle), abs=1e-6)


SHAPES = {  # depth, width, inner width, context
    "lm_small": (16, 128, 2048, 256), "smoe_small": (3, 128, 128, 256), "smoe_medium": (6, 352, 352, 512),
    "gpt_small": (16, 410, 2100, 256),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_the_papers_shape(name):
    depth, width, inner, context = SHAPES[name.removeprefix("sym")]
    with torch.device("meta"):
        model = build_language_model(name, {}, 267_735)
    block = model.blocks[0]
    first = block.mlp.up[0] if "smoe" in name else block.mlp[0].weight
    assert (len(model.blocks), *first.shape, model.config.context) == (depth, inner, width, context)
    assert block.attn.num_heads == (10 if "gpt" in name else 8)
    assert ("q" in block.attn.mechanism.needs) is not name.startswith("sym")
    if "smoe" in name:
        assert (block.mlp.router.out_features, block.mlp.top_k) == (16, 2)


def test_the_language_model_is_built_as_its_repository_does():
    """Post-norm, ReLU, sinusoidal positions, embeddings times √d, adaptive softmax over the paper's 267,735 words."""
    with torch.device("meta"):
        model = build_language_model("symlm_small", {}, 267_735)
    config = model.config
    assert (config.norm, config.activation, config.positions) == ("post", "relu", "sinusoidal")
    assert (config.dropout, config.attn_dropout, config.qkv_bias) == (0.1, 0.0, False)
    assert (model.head.short, model.head.tails) == (20_000, [(20_000, 40_000), (40_000, 200_000), (200_000, 267_735)])


def test_embeddings_are_as_large_as_the_sines_beside_them(build, tokens):
    model = build()
    torch.testing.assert_close(model.embed(tokens), model.embedding.weight[tokens] * math.sqrt(32))
    learned = build("learned positions")
    torch.testing.assert_close(learned.embed(tokens), learned.embedding.weight[tokens])


def test_norms_stand_behind_or_before(build, tokens):
    """Post-norm: the output of a layer is normalised. Pre-norm: the layer adds to its input."""
    for kind, norm in (("softmax", "post"), ("learned positions", "pre")):
        block = build(kind).blocks[0]
        for module in (block.norm1, block.norm2):
            torch.nn.init.ones_(module.weight), torch.nn.init.zeros_(module.bias)
        with torch.no_grad():
            out = block(100 * torch.randn(3, 24, 32), None, is_causal=True)
        assert bool(out.std(-1).mean() < 2) is (norm == "post")


def test_attention_dropout_is_asked_for(build, tokens):
    with torch.no_grad():
        still, dropped = (build(attn_dropout=x, dropout=0.0).train()(tokens) for x in (0.0, 0.5))
    assert not torch.allclose(still, dropped)


def test_padding_goes_to_no_expert(build, tokens):
    model = build("experts").train()
    mask = torch.arange(24) < torch.tensor([[24], [5], [1]])
    model(tokens, key_mask=mask)
    assert [int(each.load.sum()) for each in model.experts()] == [2 * 30] * 2


def test_cutoffs_beyond_a_small_vocabulary_are_left_out():
    with torch.device("meta"):
        assert build_language_model("symlm_small", {}, 34_000).config.cutoffs == [20_000]
        assert build_language_model("symlm_small", {}, 900).config.cutoffs == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depht": 3}, "unknown key depht; did you mean depth?"),
        ({"num_heads": 5}, "embed_dim is 128 with 5 heads"),
        ({"experts": 4, "activation": "gelu"}, "experts use ReLU"),
        ({"attention": ["softmax"]}, "attention names 1 layers; expected 16"),
        ({"attention": "lineal"}, "attention"),
        ({"experts": 2, "top_k": 3}, "top_k is 3; expected at most the 2 experts"),
        ({"cutoffs": [50, 20]}, "expected increasing numbers below it"),
        ({"rpc": {"form": "query", "layers": {"99": PURSUIT}}}, "the model's attention layers are 0 to 15"),
    ],
)
def test_wrong_options_are_answered_with_a_sentence(options, said):
    with torch.device("meta"), pytest.raises(InputError, match=said.replace("?", r"\?")):
        build_language_model("symlm_small", options, 100)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean symlm_small"):
        build_language_model("symlm_smal", {}, 100)


def test_tokens_and_lengths_are_checked(build, tokens):
    with pytest.raises(InputError, match=r"expected whole numbers \(B, T\)"):
        build()(tokens.float())
    with pytest.raises(InputError, match="the text has 30 tokens; the model has 24 positions"):
        build("learned positions")(torch.zeros(1, 30, dtype=torch.long))
    with pytest.warns(LeakWarning):
        leaking = build("rpc", mu="global")
    with pytest.raises(InputError, match="cannot decode from a cache"):
        leaking(tokens, caches=leaking.new_caches())


def test_rpc_layers_may_be_any(build, tokens):
    """Each choice of layers gives different outputs."""
    with torch.no_grad():
        found = [build("symmetric", rpc={"form": "query", "layers": dict.fromkeys(chosen, PURSUIT)})(tokens)
                 for chosen in ("0", "1", "01")]  # fmt: skip
        found.append(build("symmetric")(tokens))
    for one in range(4):
        assert not any(torch.equal(found[one], found[other]) for other in range(one))


def test_tokens_not_numbered_by_frequency_have_one_softmax():
    with torch.device("meta"):
        assert build_language_model("symlm_small", {}, 50_000, by_frequency=False).config.cutoffs == []
        with pytest.raises(InputError, match=r"limit it with data\.vocabulary"):
            build_language_model("symlm_small", {"vocab_size": 5}, 50_000)


def test_a_model_can_be_copied_after_a_step(build, tokens):
    model = build("experts", balance=0.1).train()
    (model(tokens, tokens).mean() + model.balance_loss()).backward()
    copy.deepcopy(model)
