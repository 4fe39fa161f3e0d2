"""Evaluation with --robustify, and of models saved with RPC-Attention."""

import numpy as np
import pytest
import torch
from timm.models import save_for_hf
from typer.testing import CliRunner

import principal_attention as pa
from evaluated import CLASSES, HALF, OPTIONS, SIDE, create, fit, records
from principal_attention.cli.app import app
from principal_attention.plumbing.files import read_jsonl
from principal_attention.tasks.image_classes.subject import ImageSubject

WORDS = "preset=cleaned,iterations=2,lam=0.1,layers=all"
TOLD = f"{WORDS},form=query"
PURSUIT = pa.Pursuit(2, 0.1, "cleaned")


def principal(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "140"})
    assert done.exit_code == 0, done.output
    return done.output


def sure(folder):
    """Confidence of each answer, by the number of the example."""
    lines = read_jsonl(folder / "outcomes-0.jsonl")
    return {i: x for line in lines for i, x in zip(line["index"], line["confidence"], strict=True)}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """timm's own ViT, trained, and saved as timm saves models."""
    torch.manual_seed(0)
    model = fit(create("vit_tiny_patch16_224", **OPTIONS))
    model.pretrained_cfg |= {"mean": HALF, "std": HALF, "input_size": (3, SIDE, SIDE)}
    return model


@pytest.fixture(scope="module")
def saved(plain, tmp_path_factory):
    """saved[robust]: folder of the model without and with RPC-Attention."""
    root = tmp_path_factory.mktemp("timm")
    options = {key: x for key, x in OPTIONS.items() if key != "num_classes"}
    for robust in (False, True):
        if robust:
            pa.robustify(plain, pursuit=PURSUIT, layers="all")
        config = {"label_names": list(CLASSES)}
        save_for_hf(plain, str(root / str(robust)), config, model_args=options, safe_serialization=True)
    pa.restore(plain)
    return {robust: root / str(robust) for robust in (False, True)}


def test_named_and_saved_are_the_same_model_image_by_image(saved, folder, tmp_path):
    common = ("--data", folder, "--suite", "clean")
    principal("evaluate", saved[False], *common, "--out", tmp_path / "plain")
    principal("evaluate", saved[False], "--robustify", WORDS, *common, "--out", tmp_path / "named")
    principal("evaluate", saved[True], *common, "--out", tmp_path / "saved")
    assert sure(tmp_path / "named") == sure(tmp_path / "saved") != sure(tmp_path / "plain")
    assert all("robustify" not in each for each in records(tmp_path / "plain"))
    for name in ("named", "saved"):
        assert {each["robustify"] for each in records(tmp_path / name)} == {TOLD}


def test_weights_whose_config_records_rpc_attention_are_not_taken_for_the_plain_model(saved, tmp_path):
    """`timm:NAME@FOLDER/model.safetensors` uses the config in the folder of the weights."""
    torch.manual_seed(0)
    model = create("vit_tiny_patch16_224").eval()
    pa.robustify(model, pursuit=PURSUIT, layers="all")
    save_for_hf(model, str(tmp_path), safe_serialization=True)
    for weights in (tmp_path, tmp_path / "model.safetensors"):
        subject = ImageSubject(f"timm:vit_tiny_patch16_224@{weights}")
        assert subject.robustify == TOLD
        images = torch.rand(1, 3, 224, 224)
        with torch.no_grad():
            assert torch.equal(subject.network(images), model(images))


def test_the_robust_model_is_another_one_in_the_same_folder(saved, folder, tmp_path):
    principal("evaluate", saved[False], "--data", folder, "--out", tmp_path)
    words = ["evaluate", str(saved[False]), "--robustify", WORDS, "--data", str(folder), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "+cleaned-2-0.1-all: choose another --out" in done.output) == (1, True)


def test_heads_are_analysed_with_what_was_put_in(saved, folder, tmp_path):
    common = ("--data", folder, "--images", 3)
    principal("analyze", saved[False], "--robustify", WORDS, *common, "--out", tmp_path / "named")
    principal("analyze", saved[True], *common, "--out", tmp_path / "saved")
    principal("analyze", saved[False], *common, "--out", tmp_path / "plain")
    named, kept, plain = (
        {(r["case"], r["metric"], r["null"], r.get("component")): r["value"] for r in records(tmp_path / name)}
        for name in ("named", "saved", "plain")
    )
    assert named == kept != plain
    assert {each["robustify"] for each in records(tmp_path / "named")} == {TOLD}


def test_a_hugging_face_model_by_its_folder(folder, tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        image_size=SIDE, patch_size=8, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48, num_labels=4, id2label=dict(enumerate(CLASSES)), hidden_act="gelu",
    )  # fmt: skip
    model = ViTForImageClassification(config)
    model.save_pretrained(tmp_path / "plain")
    pa.robustify(model, pursuit=PURSUIT, layers="all")
    model.save_pretrained(tmp_path / "robust")
    given = {
        "prefixed": (f"hf:{tmp_path / 'robust'}",), "bare": (tmp_path / "robust",),
        "named": (f"hf:{tmp_path / 'plain'}", "--robustify", WORDS), "untouched": (tmp_path / "plain",),
    }  # fmt: skip
    for name, words in given.items():
        principal("evaluate", *words, "--data", folder, "--out", tmp_path / f"out-{name}")
    prefixed, bare, named, untouched = (sure(tmp_path / f"out-{name}") for name in given)
    assert prefixed == bare == named != untouched
    assert {each["robustify"] for each in records(tmp_path / "out-bare")} == {TOLD}


def test_texts_too(language, classifier, lines, classes, tmp_path):
    """The RPC-Attention in the language model's first layer is replaced."""
    for name, more in (("own", ()), ("named", ("--robustify", "preset=cleaned,iterations=3,lam=0.2,layers=all"))):
        principal("evaluate", language, "--data", lines, *more, "--out", tmp_path / name)
        principal("evaluate", classifier, "--data", classes, *more, "--out", tmp_path / f"{name}-classes")
    own, named = (records(tmp_path / name, metric="perplexity")[0] for name in ("own", "named"))
    assert own["robustify"] == "preset=paper,iterations=3,lam=0.5,layers=first,form=symmetric"
    assert named["robustify"] == "preset=cleaned,iterations=3,lam=0.2,layers=all,form=symmetric"
    assert own["value"] != named["value"]
    assert sure(tmp_path / "own-classes") != sure(tmp_path / "named-classes")


def test_an_attacked_source_may_be_robustified(saved, folder, tmp_path):
    how = ("--data", folder, "--suite", "attacks", "--attacks", "pgd", "--steps", 3, "--eps", "8/255", "--limit", 12)
    transfer = ("--gradients", "transfer", "--source", saved[False])
    principal("evaluate", saved[False], *how, *transfer, "--out", tmp_path / "plain")
    principal("evaluate", saved[False], *how, *transfer, "--source-robustify", WORDS, "--out", tmp_path / "robust")
    plain, robust = (records(tmp_path / name, case="pgd", metric="top1")[0] for name in ("plain", "robust"))
    assert plain["source_weights"] != robust["source_weights"]


def test_comparisons_and_checks_are_records(saved, folder, tmp_path):
    how = ("--data", folder, "--suite", "clean,attacks", "--attacks", "fgsm", "--eps", "4/255", "--limit", 24)
    principal("evaluate", saved[False], *how, "--out", tmp_path / "plain")
    principal("evaluate", saved[True], *how, "--out", tmp_path / "robust", "--against", tmp_path / "plain")
    found = records(tmp_path / "robust", metric="difference")
    assert {each["case"] for each in found} == {"clean", "fgsm"}
    for each in found:
        ours, theirs = (
            records(tmp_path / name, case=each["case"], metric="top1")[0]["value"] for name in ("robust", "plain")
        )
        assert each["value"] == pytest.approx(ours - theirs)
        assert each["low"] <= each["value"] <= each["high"]
        assert (each["against"], each["task"]) == ("False", "images")
        assert each["value"] == pytest.approx((each["only_ours"] - each["only_theirs"]) / each["n"])
    checks = records(tmp_path / "robust", metric="check")
    assert [each["case"] for each in checks] == ["zero gradients", "AutoAttack's flags"]
    assert np.isin([each["value"] for each in checks], [0.0, 1.0]).all()
    principal("evaluate", saved[True], *how, "--out", tmp_path / "robust")  # keeps the comparisons
    assert records(tmp_path / "robust", metric="difference") == found
