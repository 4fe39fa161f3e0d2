"""Suite `certificate` and `principal certify`: records, table, resuming, comparison, errors."""

import pytest
import torch
from typer.testing import CliRunner

import principal_attention as pa
from evaluated import HALF, OPTIONS, create, fit, records, save
from evaluated import principal as evaluate
from principal_attention.cli.app import app
from principal_attention.evaluation.outcomes import Outcomes
from principal_attention.tasks.classes import interval
from principal_attention.vision.data import evaluation_transform, open_split
from principal_attention.vision.models.load import load_classifier
from principal_attention.vision.pixels import OnPixels


def certify(*arguments, code=0):
    found = CliRunner().invoke(app, ["certify", *map(str, arguments)], env={"COLUMNS": "140"})
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


@pytest.fixture(scope="module")
def certificates(trained, folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("certificates") / "sym"
    said = certify(trained, "--patch", "2,9", "--data", folder, "--limit", 12, "--out", out)
    return out, said


def test_certified_and_top1_by_patch_size(certificates, trained, folder):
    out, said = certificates
    classifier = load_classifier(str(trained))
    model = OnPixels(classifier.network, HALF, HALF).requires_grad_(False)
    split = open_split(str(folder), "val")
    see = evaluation_transform(32, mean=(0.0,) * 3, std=(1.0,) * 3, crop_pct=1.0, interpolation="bicubic")
    for patch in (2, 9):
        (result,) = [r for r in Outcomes(out).results() if r.description["patch"] == patch]
        assert set(result.columns) == {"index", "label", "predicted", "certified"}
        images = torch.stack([see(split.read(split.rows[int(i)], int(i), "RGB")[0]) for i in result.columns["index"]])
        found = pa.MaskedCertifier(model, patch)(images)
        assert result.columns["predicted"].tolist() == found.answers.tolist()
        held = found.certified & (found.answers == torch.tensor(result.columns["label"]))
        (certified,) = records(out, metric="certified", patch=patch)
        (top1,) = records(out, metric="top1", patch=patch)
        assert (certified["case"], certified["n"], certified["masks"]) == (f"{patch}x{patch}", 12, 9)
        assert certified["value"] == held.float().mean().item()
        assert (certified["low"], certified["high"]) == interval(int(held.sum()), 12)
        assert top1["value"] >= certified["value"]
        assert f"{patch}×{patch} pixels" in said
        assert f"{100 * certified['value']:.1f}" in said
    assert records(out, metric="certified", patch=2)[0]["value"] > 0


def test_it_resumes_and_is_the_suite_of_evaluate(certificates, trained, folder, tmp_path):
    out, _ = certificates
    files = {path.name: path.read_bytes() for path in out.glob("outcomes-*")}
    certify(trained, "--patch", "2,9", "--data", folder, "--limit", 12, "--out", out)
    assert {path.name: path.read_bytes() for path in out.glob("outcomes-*")} == files
    suite = ("--suite", "certificate", "--patch", 9, "--batch-size", 4)
    evaluate(trained, *suite, "--data", folder, "--limit", 12, "--out", tmp_path / "same")
    same = [each["value"] for each in records(tmp_path / "same")]
    assert same == [each["value"] for each in records(out, patch=9)]
    said = evaluate(trained, "--patch", 9, "--data", folder, code=1)
    assert "--patch is an option of --suite" in said


def test_models_are_compared_by_their_certified_images(certificates, folder, tmp_path):
    torch.manual_seed(1)
    other = save(fit(create("vit_tiny_patch16_224", **OPTIONS), steps=5), tmp_path / "other")
    out, _ = certificates
    certify(other, "--patch", 9, "--data", folder, "--limit", 12, "--out", tmp_path / "out", "--against", out)
    (found,) = records(tmp_path / "out", metric="difference")
    (ours,), (theirs,) = (records(each, metric="certified", patch=9) for each in (tmp_path / "out", out))
    assert found["value"] == pytest.approx(ours["value"] - theirs["value"])
    assert (found["case"], found["patch"]) == ("9x9", 9)


def test_the_default_folder_is_not_that_of_evaluate(trained, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    certify(trained, "--patch", 9, "--data", folder, "--limit", 4)
    assert records(tmp_path / "runs" / f"certify-{trained.name}", metric="certified")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--patch", "0"), "--patch is '0'; expected whole numbers of pixels from 1"),
        (("--patch", "wide"), "--patch is 'wide'; expected a valid integer"),
        (("--patch", ""), "expected whole numbers of pixels from 1"),
        (("--patch", "40"), "patch is 40 and the images have 32×32 pixels; expected a smaller patch"),
        (("--patch", "30"), "a patch of 30 pixels touches up to 5 of the 4 tokens"),
    ],
)
def test_wrong_sizes_are_refused(words, sentence, trained, folder, tmp_path):
    said = certify(trained, "--data", folder, "--out", tmp_path / "out", *words, code=1)
    assert sentence in said
    assert not (tmp_path / "out").exists()


def test_other_models_are_refused(language, folder, tmp_path):
    network = create("test_resnet", num_classes=4)
    convolutions = save(network, tmp_path / "cnn", options={})
    said = certify(convolutions, "--data", folder, "--out", tmp_path / "out", code=1)
    assert "is no vision transformer of a known class; expected timm's VisionTransformer" in said
    assert "there is no suite" in certify(language, "--data", folder, code=1)


def test_the_help_has_an_example():
    said = certify("--help")
    assert "Example: principal certify" in said
    assert "--patch" in said
