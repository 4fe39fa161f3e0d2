"""transformers models: the setting in the config, masks, and refused cases."""

import json
import math

import pytest
import torch

import principal_attention as pa
from families import CAUSAL, TEXT, TRANSFORMERS, WORDS, N, build, inputs, positions, run
from principal_attention import InputError, Pursuit

EVERY = pytest.mark.parametrize("name", TRANSFORMERS)


@EVERY
@torch.no_grad()
def test_a_saved_model_comes_back_with_its_choice(name, tmp_path):
    model = pa.robustify(build(name), pursuit={0: Pursuit(4, 0.3), 2: Pursuit(3, math.inf, "cleaned")})
    out, plain = run(name, model), run(name, build(name))
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["attn_implementation"] == "rpc"
    assert written["rpc"]["layers"]["2"] == {"iterations": 3, "lam": "inf", "preset": "cleaned"}
    loaded = type(model).from_pretrained(tmp_path)
    for _ in range(2):  # twice: also from the folder saved by the loaded model
        assert torch.equal(run(name, loaded), out)
        assert loaded.config.rpc == model.config.rpc
        assert str(loaded) == str(model)
        loaded.save_pretrained(tmp_path / "again")
        loaded = type(model).from_pretrained(tmp_path / "again")
    untouched = type(model).from_pretrained(tmp_path, attn_implementation="sdpa")
    assert torch.equal(run(name, untouched), plain)
    assert torch.equal(run(name, pa.robustify(untouched)), out)  # the config keeps the setting
    assert torch.equal(run(name, pa.restore(loaded)), plain)
    assert not {"rpc", "attn_implementation"} & loaded.config.to_dict().keys()


@EVERY
@torch.no_grad()
def test_from_pretrained_with_the_implementation_by_name(name, tmp_path):
    build(name).save_pretrained(tmp_path)
    loaded = type(build(name)).from_pretrained(tmp_path, attn_implementation="rpc")
    expected = pa.robustify(build(name), pursuit=Pursuit(), layers="first")  # the paper's setting
    assert torch.equal(run(name, loaded), run(name, expected))
    assert str(loaded) == str(expected)


def test_the_name_is_known_whichever_library_comes_first(python, tmp_path):
    pa.robustify(build("bert"), pursuit=Pursuit(4, 0.3)).save_pretrained(tmp_path)
    load = "import sys; print(AutoModel.from_pretrained(sys.argv[1]).config._attn_implementation)"
    ours, theirs = "import principal_attention;", "from transformers import AutoModel;"
    for code in (ours + theirs + load, theirs + ours + load):
        done = python(code, tmp_path)
        assert done.stdout.strip() == "rpc", done.stderr


def test_without_this_package_a_saved_choice_is_an_error_and_never_ignored(tmp_path, monkeypatch):
    from transformers import AttentionInterface, BertModel

    pa.robustify(build("bert"), pursuit=Pursuit(4, 0.3)).save_pretrained(tmp_path)
    monkeypatch.delitem(AttentionInterface._global_mapping, "rpc")
    with pytest.raises(ValueError, match='attn_implementation="rpc"` is not supported'):
        BertModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", TEXT)
@torch.no_grad()
def test_padding_changes_nothing(name):
    """A padded batch gives the same outputs as single sentences, with presets whose mu would show padded keys."""
    given = inputs(name)
    if name == "distilbert":  # it takes no positions, so its padding is on the right
        given = {key: x.flip(1) for key, x in given.items()}
    for pursuit in (Pursuit(4, 0.3), Pursuit(2, 0.3, "authors"), Pursuit(3, 0.2, "cleaned")):
        for form in ("query", "symmetric"):
            model = pa.robustify(build(name, torch.float64), pursuit=pursuit, layers="all", form=form)
            batch = model(**given, **positions(name, given["attention_mask"]))[0]
            for ids, mask, rows in zip(given["input_ids"], given["attention_mask"].bool(), batch, strict=True):
                alone = model(ids[mask][None], **positions(name, torch.ones(1, int(mask.sum()))))
                scale = alone[0].abs().max()
                assert (rows[mask] - alone[0][0]).abs().max() < 1e-9 * scale


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_no_later_token_changes_an_earlier_logit(name):
    model = pa.robustify(build(name), pursuit=Pursuit(4, 0.3), layers="all")
    ids = inputs(name)["input_ids"]
    edited = ids.clone()
    edited[:, 6:] = (edited[:, 6:] + 1) % WORDS
    assert torch.equal(model(ids)[0][:, :6], model(edited)[0][:, :6])
    assert not torch.equal(model(ids)[0][:, 6:], model(edited)[0][:, 6:])


@torch.no_grad()
def test_a_mask_of_the_callers_own():
    """Masks with four dimensions: any mask in an encoder; a causal mask makes mu a prefix mu."""
    model = pa.robustify(build("bert", torch.float64), pursuit=Pursuit(4, 0.3), layers="all")
    ids = inputs("bert")["input_ids"]
    seen = torch.arange(N) < 7
    short = model(ids[:, :7])[0]
    square = (seen & seen[:, None]).expand(2, 1, N, N)
    torch.testing.assert_close(model(ids, attention_mask=square)[0][:, :7], short)
    causal = torch.ones(2, 1, N, N, dtype=torch.bool).tril()
    edited = ids.clone()
    edited[:, 6:] = 3
    assert torch.equal(model(ids, attention_mask=causal)[0][:, :6], model(edited, attention_mask=causal)[0][:, :6])
    llama = pa.robustify(build("llama", torch.float64), pursuit=Pursuit(4, 0.3), layers="all")
    full, by_flag = llama(ids, attention_mask=causal)[0], llama(ids)[0]
    torch.testing.assert_close(full, by_flag)


@torch.no_grad()
def test_a_layer_that_was_not_chosen_is_as_fast_attention_has_it():
    for name in TEXT:
        model, given = build(name), inputs(name)
        plain = run(name, model)
        pa.robustify(model, pursuit=Pursuit(4, 0.3), layers=[2])
        states = model(**given, output_hidden_states=True).hidden_states
        first = build(name)(**given, output_hidden_states=True).hidden_states
        valid = given["attention_mask"].bool()
        for depth in (0, 1, 2):  # up to the input of the last layer
            torch.testing.assert_close(states[depth][valid], first[depth][valid], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(run(name, model), plain, atol=1e-3)  # far beyond rounding: the last layer is changed


def test_what_it_cannot_do_is_said():
    model = pa.robustify(build("bert"), pursuit=Pursuit(4, 0.3))
    with pytest.raises(InputError, match="no attention matrix to return"):
        model(**inputs("bert"), output_attentions=True)
    model.set_attn_implementation("sdpa")
    with pytest.raises(InputError, match=r"set to 'sdpa' while it holds RPC-Attention; call pa.restore"):
        model(**inputs("bert"))
    assert torch.equal(run("bert", pa.restore(model)), run("bert", build("bert")))


def test_parts_and_composites_are_refused_since_a_config_could_not_count_them():
    from transformers import (
        BertConfig,
        BertLMHeadModel,
        GPT2Config,
        VisionEncoderDecoderConfig,
        VisionEncoderDecoderModel,
        ViTConfig,
    )

    model = pa.robustify(build("llama"), pursuit=Pursuit(4, 0.3), layers=[1])
    out = run("llama", model)
    for act in (lambda part: pa.robustify(part, pursuit=Pursuit()), pa.restore):
        with pytest.raises(InputError, match="part of a transformers model"):
            act(model.model.layers[1])
    assert torch.equal(run("llama", model), out)
    assert pa.restore(model).config._attn_implementation == "sdpa"
    small = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        ViTConfig(**small, image_size=16, patch_size=8), GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=9)
    )
    composite = VisionEncoderDecoderModel(config)
    with pytest.raises(InputError, match="made of models with configs of their own"):
        pa.robustify(composite, pursuit=Pursuit())
    assert "rpc" not in str(pa.restore(composite))
    assert "rpc=" in str(pa.robustify(composite.encoder, pursuit=Pursuit()))
    decoder = BertLMHeadModel(BertConfig(**small, vocab_size=9, is_decoder=True, add_cross_attention=True))
    pa.robustify(decoder, pursuit=Pursuit(), layers="all")
    assert str(decoder).count("rpc=") == 1  # not its cross-attention


def test_a_family_that_is_not_known_can_be_registered(monkeypatch, tmp_path):
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention

    small = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=16
    )
    model, ids = Qwen2ForCausalLM(Qwen2Config(**small, vocab_size=9)).double().eval(), torch.arange(8)[None]
    plain = model(ids).logits
    with pytest.raises(InputError, match=r"2 × .*Qwen2Attention: if it attends once.*register\(Qwen2Attention\)"):
        pa.robustify(model, pursuit=Pursuit())
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="holds no attention that is known: register"):
        Qwen2ForCausalLM.from_pretrained(tmp_path, attn_implementation="rpc")
    monkeypatch.setattr("principal_attention.adapt.registry._REGISTERED", {Qwen2Attention})
    pa.robustify(model, pursuit=Pursuit(1, math.inf), layers="all")
    torch.testing.assert_close(model(ids).logits, plain)
    Qwen2ForCausalLM.from_pretrained(tmp_path, attn_implementation="rpc")


def test_the_name_set_by_hand_would_do_nothing_and_says_so():
    model = build("bert")
    model.set_attn_implementation("rpc")
    with pytest.raises(InputError, match=r"no layer has a pursuit: call pa.robustify"):
        run("bert", model)


@torch.no_grad()
def test_a_bias_on_keys_stays_a_bias():
    model, ids = build("bert", torch.float64), inputs("bert")["input_ids"]
    bias = torch.randn(2, 1, 1, N, dtype=torch.float64)
    plain = model(ids, attention_mask=bias)[0]
    pa.robustify(model, pursuit=Pursuit(1, math.inf), layers=[0, 2])
    torch.testing.assert_close(model(ids, attention_mask=bias)[0], plain)


def test_a_strangers_config_is_checked(tmp_path):
    from transformers import BertModel

    pa.robustify(build("bert"), pursuit=Pursuit(4, 0.3)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    good = json.loads(path.read_text())
    for rpc, says in (
        ("everything", "expected"),
        (good["rpc"] | {"layers": {"7": {}}}, "layer 7 was chosen"),
        (good["rpc"] | {"layers": {"0": {"import": "os"}}}, "no field 'import'"),
    ):
        path.write_text(json.dumps(good | {"rpc": rpc}))
        with pytest.raises(InputError, match=says):
            BertModel.from_pretrained(tmp_path)


def test_eager_models_go_back_to_eager():
    model = build("bert")
    model.set_attn_implementation("eager")
    plain = run("bert", model)
    pa.robustify(model, pursuit=Pursuit(1, math.inf), layers="all")
    torch.testing.assert_close(run("bert", model), plain, rtol=1e-5, atol=1e-5)
    pa.robustify(model, pursuit=Pursuit(4, 0.3))
    pa.restore(model)
    assert model.config._attn_implementation == "eager"
    assert torch.equal(run("bert", model), plain)


def test_a_wrapper_around_a_model_is_looked_into():
    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = build("bert")

        def forward(self, **given):
            return self.encoder(**given)[0].mean(1)

    model = Classifier()
    plain = model(**inputs("bert"))
    pa.robustify(model, pursuit=Pursuit(4, 0.3), layers=[1])
    assert "1" in model.encoder.config.rpc["layers"]
    assert not torch.allclose(model(**inputs("bert")), plain)
    assert torch.equal(pa.restore(model)(**inputs("bert")), plain)
