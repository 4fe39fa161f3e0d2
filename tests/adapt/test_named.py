"""Names of models, and RPC-Attention as text: parsing and printing are inverse."""

import math

import pytest
import torch

import principal_attention as pa
from principal_attention.adapt.describe import describe, name_of
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
    settings = (pa.Pursuit, pa.TokenPursuit, pa.TokenReweighting, pa.Temperature)
    own = {name for setting in settings for name in setting.__dataclass_fields__} - {"kind"}  # in words, the preset
    data = {"calibrate", "calibrate_split", "calibrate_images"}
    assert set(Robustify.model_fields) == {"layers", "form"} | own | data


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("preset=tokens", pa.TokenPursuit()),
        ("preset=tokens,quantile=0.99,strength=5,prefix=0", pa.TokenPursuit(0.99, 5.0, 0)),
        ("preset=mcp", pa.TokenReweighting("mcp", 3, 4.0)),
        ("preset=huber,iterations=2,gamma=8", pa.TokenReweighting("huber", 2, 8.0)),
        ("preset=l1,iterations=4", pa.TokenReweighting("l1", 4)),
        ("preset=temperature,value=0.7", pa.Temperature(0.7)),
    ],
)
def test_words_of_token_pursuit_and_the_controls(words, expected):
    found = Robustify.parse(f"{words},layers=[0,1]")
    assert (found.pursuit, found.layers) == (expected, [0, 1])
    written = found.model_dump()  # as a run's recipe is written, with every key
    assert Robustify(**written) == found
    assert Robustify(**written).pursuit == expected


def test_calibrate_is_opened_by_whoever_can_read_images():
    asked = []

    def images(*what):
        asked.append(what)
        return torch.randn(40, 5, 8)

    words = "preset=tokens,layers=all,calibrate=/data/train"
    network = Two(pa.Softmax(), pa.Softmax())
    Robustify.parse(words).put_into(network, images)
    Robustify.parse(f"{words},calibrate_split=test,calibrate_images=7").put_into(network, images)
    assert asked == [("/data/train", None, 300), ("/data/train", "test", 7)]
    assert describe(network) == "preset=tokens,quantile=0.999,strength=20,prefix=0,layers=all (calibrated)"
    with pytest.raises(InputError, match="calibrate is /data/train, but this model takes no images"):
        Robustify.parse(words).put_into(network)


def test_records_are_named_by_the_setting():
    network = Two(pa.Softmax(), pa.Softmax())
    ref = ModelRef.of("timm:deit")
    for setting, layers, expected in (
        (pa.Pursuit(4, 1.0, "cleaned"), "all", "deit+cleaned-4-1-all"),
        (pa.TokenPursuit(), [1], "deit+tokens-0.999-20-own-[1]"),
        (pa.TokenPursuit(), "first", "deit+tokens-0.999-20-own-first"),  # the layer behind it was not chosen
        (pa.TokenReweighting("mcp"), "all", "deit+mcp-3-4-all"),
        (pa.TokenReweighting("l1", 2), "all", "deit+l1-2-all"),
        (pa.Temperature(0.7), "all", "deit+temperature-0.7-all"),
    ):
        assert name_of(ref, pa.robustify(network, pursuit=setting, layers=layers)) == expected
    pa.robustify(network, pursuit=pa.TokenPursuit(), calibrate=torch.randn(9, 5, 8))
    assert name_of(ref, network) == "deit+tokens-0.999-20-calibrated-first"
    assert name_of(ref, pa.restore(network)) == "deit"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cleaned", "expected key=value"),
        ("preset=best", "preset is 'best'; expected one of paper"),
        ("iteration=4", "unknown key iteration; did you mean iterations?"),
        ("lam=-1", "lam is -1; expected greater than or equal to 0"),
        ("layers=second", "layers is 'second'; expected"),
        ("lam=[", "is not YAML"),
        ("preset=tokens,lam=1", "lam does not fit preset=tokens; expected calibrate,"),
        ("preset=tokens,iterations=4", "iterations does not fit preset=tokens"),
        ("preset=tokens,quantile=1", "quantile is 1; expected less than 1"),
        ("preset=tokens,form=symmetric", "form does not fit preset=tokens"),
        ("preset=tokens,calibrate_images=9", "need calibrate=DATA"),
        ("preset=cleaned,calibrate=x", "calibrate does not fit preset=cleaned"),
        ("strength=3", "strength does not fit preset=cleaned"),
        ("preset=l1,gamma=4", "gamma does not fit preset=l1; expected iterations, layers, preset"),
        ("preset=temperature,value=0", "value is 0; expected greater than 0"),
        ("preset=mcp,value=1", "value does not fit preset=mcp"),
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
        "preset=tokens,quantile=0.6,strength=5,prefix=1,layers=all",
        "preset=mcp,iterations=2,gamma=8,layers=[1]",
        "preset=l1,iterations=3,layers=first",
        "preset=temperature,value=0.7,layers=all",
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
