"""Token pursuit and the controls in saved models: the record, the statistics among the weights, and opening both."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import principal_attention as pa
from families import TRANSFORMERS, build, run
from principal_attention import InputError, TokenPursuit
from principal_attention.adapt.choice import Choice
from test_token_pursuit import calibrated, clean


@pytest.mark.parametrize("name", TRANSFORMERS)
@torch.no_grad()
def test_a_saved_transformers_model_comes_back_with_its_statistics(name, tmp_path):
    model = calibrated(name, layers=[0, 1], quantile=0.7)
    out, plain = run(name, model), run(name, build(name))
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())["rpc"]
    assert written["layers"]["1"]["preset"] == "tokens"
    assert written["calibrated"] == {"0": 48, "1": 48} if name != "llama" else {"0": 24, "1": 24}  # shared key heads
    loaded = type(model).from_pretrained(tmp_path)
    for _ in range(2):
        assert torch.equal(run(name, loaded), out)
        assert str(loaded) == str(model)
        loaded.save_pretrained(tmp_path / "again")
        loaded = type(model).from_pretrained(tmp_path / "again")
    assert torch.equal(run(name, pa.robustify(loaded)), out)  # as recorded, with the statistics it holds
    assert torch.equal(run(name, pa.restore(loaded)), plain)
    without = type(model).from_pretrained(tmp_path, attn_implementation="sdpa")
    assert torch.equal(run(name, without), plain)
    with pytest.raises(InputError, match="statistics of token pursuit were not loaded"):
        run(name, pa.robustify(without))


@torch.no_grad()
def test_a_file_without_the_statistics_is_an_error(tmp_path):
    model = calibrated("hf vit")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({key: x for key, x in load_file(path).items() if "rpc_" not in key}, path, {"format": "pt"})
    loaded = type(model).from_pretrained(tmp_path)
    with pytest.raises(InputError, match="statistics of token pursuit were not loaded"):
        run("hf vit", loaded)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(run("hf vit", loaded), run("hf vit", model))


@pytest.mark.parametrize("setting", [pa.TokenPursuit(0.6), pa.TokenReweighting("huber", 2, 9.0), pa.Temperature(0.7)])
@torch.no_grad()
def test_settings_without_statistics_are_saved_as_well(setting, tmp_path):
    model = pa.robustify(build("hf deit"), pursuit=setting, layers=[1, 2])
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert torch.equal(run("hf deit", loaded), run("hf deit", model))
    assert str(loaded) == str(model)


@pytest.mark.parametrize("calibrate", [True, False])
@torch.no_grad()
def test_timm_opens_the_plain_model_with_a_warning_and_robustify_completes_it(calibrate, tmp_path):
    import timm
    from timm.models import save_for_hf

    options = dict(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=4, num_classes=10)
    data = clean("timm vit")
    model = timm.create_model("vit_tiny_patch16_224", **options).eval()
    plain = model(data)
    pa.robustify(model, pursuit=TokenPursuit(0.6), layers=[0, 2], calibrate=data if calibrate else None)
    save_for_hf(model, tmp_path, model_args=options, safe_serialization=True)
    with pytest.warns(UserWarning, match="records RPC-Attention, which timm does not put in"):
        loaded = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert "rpc" not in str(loaded)
    assert torch.equal(loaded(data), plain)
    assert torch.equal(pa.robustify(loaded)(data), model(data))
    assert str(loaded) == str(model)
    pa.restore(loaded)
    assert "rpc_saved" not in vars(loaded)
    assert torch.equal(loaded(data), plain)


def test_without_this_package_timm_refuses_the_statistics(tmp_path, python):
    """timm alone names them as unexpected keys instead of leaving them out."""
    import timm
    from timm.models import save_for_hf

    options = dict(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=4, num_classes=10)
    model = timm.create_model("vit_tiny_patch16_224", **options)
    pa.robustify(model, pursuit=TokenPursuit(), calibrate=clean("timm vit"))
    save_for_hf(model, tmp_path, model_args=options, safe_serialization=True)
    ours = "from principal_attention.installs import torchvision as t; t.declare_missing();" if _needs_help() else ""
    code = (
        "import sys\n"
        f"{ours}\n"
        "sys.meta_path = [f for f in sys.meta_path if type(f).__name__ != '_Finder']\n"
        "import timm; timm.create_model('local-dir:' + sys.argv[1], pretrained=True)"
    )
    done = python(code, tmp_path)
    assert done.returncode != 0
    assert "rpc_shift" in done.stderr


def _needs_help():
    """Whether torchvision does not import beside this torch without this package."""
    import torchvision

    return not hasattr(torchvision.extension, "_HAS_OPS") or not torchvision.extension._HAS_OPS


def test_records_are_checked_and_old_ones_still_read():
    old = {"form": "query", "layers": {"0": {"iterations": 4, "lam": "inf", "preset": "paper"}}}
    assert Choice.from_json(old, 3).pursuits == {0: pa.Pursuit(4, float("inf"))}
    assert Choice.from_json(old, 3).to_json() == old
    for setting in (TokenPursuit(0.9, 3.0, 2), pa.TokenReweighting("mcp", 2), pa.TokenReweighting("l1"),
                    pa.Temperature(2.0)):  # fmt: skip
        choice = Choice({1: setting}, "query", {1: 48} if isinstance(setting, TokenPursuit) else {})
        assert Choice.from_json(json.loads(json.dumps(choice.to_json())), 3) == choice
    tokens = {"form": "query", "layers": {"0": {"preset": "tokens"}}}
    for wrong, says in (
        (tokens | {"calibrated": {"1": 48}}, "statistics of 48 dimensions for layer 1"),
        (tokens | {"calibrated": {"0": 10**6}}, "1 to 32768 dimensions"),
        (tokens | {"calibrated": {"0": "wide"}}, "the recorded choice"),
        (tokens | {"calibrated": [48]}, "the recorded choice"),
        (old | {"calibrated": {"0": 48}}, "a layer with a TokenPursuit"),
        ({"form": "query", "layers": {"0": {"preset": "tokens", "lam": 1}}}, "a TokenPursuit has no field 'lam'"),
        ({"form": "query", "layers": {"0": {"preset": "mcp", "kind": "l1"}}}, "a TokenReweighting has no field 'kind'"),
        ({"form": "symmetric", "layers": {"0": {"preset": "tokens"}}}, "form is 'symmetric'"),
    ):
        with pytest.raises(InputError, match=says):
            Choice.from_json(wrong, 3)
