"""How models are named, and RPC-Attention in words: parsed in one place, written so that it can be read again."""

import math

import pytest
import torch

import principal_attention as pa
from principal_attention.adapt.describe import describe
from principal_attention.adapt.named import ModelRef
from principal_attention.adapt.spec import Robustify
from principal_attention.errors import InputError


@pytest.mark.parametrize(
    ("given", "library", "place", "weights", "name"),
    [
        ("timm:deit_tiny_patch16_224", "timm", "deit_tiny_patch16_224", None, "deit_tiny_patch16_224"),
        ("timm:deit_tiny_patch16_224.fb_in1k@/a/b", "timm", "deit_tiny_patch16_224.fb_in1k", "/a/b",
         "deit_tiny_patch16_224.fb_in1k"),
        ("hf:facebook/deit-tiny", "hf", "facebook/deit-tiny", None, "deit-tiny"),
        ("hf:/models/minilm", "hf", "/models/minilm", None, "minilm"),
        ("runs/first/", "folder", "runs/first/", None, "first"),
    ],
)  # fmt: skip
def test_every_form_of_a_name(given, library, place, weights, name):
    found = ModelRef.of(given)
    assert (found.library, found.place, found.weights, found.name) == (library, place, weights, name)
    assert ModelRef.of(found) is found


def test_whole_paths_can_be_read_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "weights.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    assert ModelRef.of("run").anchored() == str(tmp_path / "run")
    assert ModelRef.of("hf:run").anchored() == f"hf:{tmp_path / 'run'}"
    assert ModelRef.of("hf:facebook/deit-tiny").anchored() == "hf:facebook/deit-tiny"
    weights = "timm:deit_tiny_patch16_224@weights.safetensors"
    assert ModelRef.of(weights).anchored() == f"timm:deit_tiny_patch16_224@{tmp_path / 'weights.safetensors'}"
    assert ModelRef.of("timm:deit_tiny_patch16_224").anchored() == "timm:deit_tiny_patch16_224"


@pytest.mark.parametrize("given", ["", "  "])
def test_an_empty_name_is_refused(given):
    with pytest.raises(InputError, match="expected timm:NAME@weights, hf:FOLDER or the folder of a finished run"):
        ModelRef.of(given)


def test_words_become_a_pursuit_with_every_field_open():
    found = Robustify.parse("preset=admm, iterations=6,lam=inf,layers=[0,3],form=query,dual_sign=-1,mu=0.5,values=key")
    assert (found.layers, found.form) == ([0, 3], "query")
    assert found.pursuit == pa.Pursuit(6, math.inf, "admm", dual_sign=-1, mu=0.5, values="key")
    assert set(Robustify.model_fields) == {"layers", "form", *pa.Pursuit.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cleaned", "expected key=value"),
        ("preset=best", "preset is 'best'; expected one of paper"),
        ("iteration=4", "unknown key iteration; did you mean iterations?"),
        ("lam=-1", "lam is -1; expected greater than or equal to 0"),
        ("layers=second", "layers is 'second'; expected"),
        ("lam=[", "is not YAML"),
    ],
)
def test_mistakes_in_words_are_named(text, sentence):
    with pytest.raises(InputError) as found:
        Robustify.parse(text)
    assert sentence in str(found.value)


class Two(torch.nn.Module):
    def __init__(self, *mechanisms):
        super().__init__()
        self.layers = torch.nn.Sequential(*(pa.SelfAttention(8, 2, mechanism) for mechanism in mechanisms))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize(
    "words",
    [
        "preset=cleaned,iterations=4,lam=0.5,layers=all,form=query",
        "preset=paper,iterations=2,lam=4,layers=first,form=symmetric",
        "preset=admm,iterations=3,lam=inf,mu_grad=false,layers=[1],form=query",
        "preset=paper,iterations=2,lam=1,dual_sign=1,layers=first,form=query",
    ],
)
def test_what_a_network_holds_is_said_in_the_words_that_put_it_there(words):
    network = Two(pa.Softmax(), pa.Softmax())
    assert describe(network) is None
    Robustify.parse(words).put_into(network)
    assert describe(network) == words
    again = Two(pa.Softmax(), pa.Softmax())
    again.load_state_dict(network.state_dict())
    Robustify.parse(describe(network)).put_into(again)
    x = torch.randn(1, 5, 8)
    assert torch.equal(network(x), again(x))


def test_layers_that_differ_and_layers_that_were_made_so_are_described():
    made = Two(pa.RPC(pa.Pursuit(2, 1.0)), pa.Softmax())
    assert describe(made) == "preset=paper,iterations=2,lam=1,layers=first,form=symmetric"
    network = pa.robustify(Two(pa.Softmax(), pa.Softmax()), pursuit={0: pa.Pursuit(2), 1: pa.Pursuit(3)})
    assert describe(network) == (
        "preset=paper,iterations=2,lam=4,layers=first,form=query; preset=paper,iterations=3,lam=4,layers=[1],form=query"
    )
