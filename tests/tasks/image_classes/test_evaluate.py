"""`principal evaluate` as people call it: what it measures, resumes, shares, compares and refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import principal_attention as pa
from evaluated import principal, records
from principal_attention.data.order import stratified
from principal_attention.evaluation.outcomes import Outcomes, key_of
from principal_attention.plumbing.files import read_jsonl
from principal_attention.tasks.classes import right
from principal_attention.tasks.image_classes import cases
from principal_attention.tasks.image_classes.examples import Images
from principal_attention.tasks.image_classes.protocols import Surrogate
from principal_attention.tasks.image_classes.subject import ImageSubject
from principal_attention.vision.attacks import attack
from principal_attention.vision.corruptions import corrupt
from principal_attention.vision.data import open_split


def without_time(folder):
    return [{key: x for key, x in r.items() if key != "seconds"} for r in read_jsonl(folder / "records.jsonl")]


@pytest.fixture
def whole(folder, trained):
    """The subject, and all images with their labels, in the order of the data."""
    subject = ImageSubject(str(trained))
    images = Images(open_split(str(folder)), subject.view, subject.classifier.labels)
    (batch,) = images.batches(len(images), [0], 0)
    order = np.argsort(batch.indices)
    return subject, batch.images[order], batch.labels[order]


def test_the_numbers_are_those_of_the_pieces(folder, trained, whole, tmp_path):
    """Accuracy, a corruption and an attack by the command equal those computed here with different batches."""
    subject, images, labels = whole
    out = principal(
        trained, "--data", folder, "--suite", "clean,corruptions,attacks", "--corruptions", "gaussian_noise,fog",
        "--severities", "1,5", "--attacks", "pgd", "--eps", "4/255", "--steps", 5, "--batch-size", 7,
        "--out", tmp_path / "out",
    )  # fmt: skip
    clean = subject.on_pixels(images).argmax(1) == labels
    assert 0.8 < clean.double().mean() <= 1  # it has learned something
    (found,) = records(tmp_path / "out", suite="clean", metric="top1")
    assert (found["value"], found["n"]) == (clean.double().mean().item(), 60)
    assert found["low"] < found["value"] <= found["high"] <= 1
    for name in ("gaussian_noise", "fog"):
        for severity in (1, 5):
            right = subject.on_pixels(corrupt(images, name, severity)).argmax(1) == labels
            (found,) = records(tmp_path / "out", case=name, severity=severity, metric="top1")
            assert found["value"] == right.double().mean().item()
    changed = attack("pgd", subject.on_pixels, images, labels, eps=4 / 255, steps=5)
    right = clean & (subject.on_pixels(changed).argmax(1) == labels)
    (found,) = records(tmp_path / "out", case="pgd", metric="top1")
    assert found["value"] == pytest.approx(right.double().mean().item())
    assert (found["protocol"], found["gradients"], found["norm"], found["steps"]) == ("pixel", "own", "linf", 5)
    for word in ("clean", "ε = 4/255, 5 steps, pixel", "gaussian_noise", "severity", "Checks for masked gradients"):
        assert word in out


def test_a_stopped_evaluation_goes_on_and_ends_the_same(folder, trained, tmp_path, monkeypatch):
    options = [
        "--data",
        folder,
        "--suite",
        "clean,corruptions",
        "--corruptions",
        "snow",
        "--severities",
        "3",
        "--batch-size",
        8,
    ]
    principal(trained, *options, "--out", tmp_path / "whole")
    measured, true = [], cases.answers

    def stops(*given):
        if len(measured) == 5:
            raise KeyboardInterrupt
        measured.append(1)
        return true(*given)

    monkeypatch.setattr(cases, "answers", stops)
    assert "to continue" in principal(trained, *options, "--out", tmp_path / "stopped", code=130)
    assert not (tmp_path / "stopped" / "records.jsonl").exists()
    measured[:] = [1] * 10
    principal(trained, *options, "--out", tmp_path / "stopped")
    assert len(measured) - 10 == 16 - 5  # 8 batches of two cases, five of them done before
    assert without_time(tmp_path / "stopped") == without_time(tmp_path / "whole")


def test_a_killed_evaluation_goes_on(folder, trained, tmp_path):
    """After kill -9, the same command gives the records of an uninterrupted evaluation."""
    options = [
        trained, "--data", folder, "--suite", "attacks", "--attacks", "pgd", "--steps", 60, "--batch-size", 5, "--out"
    ]  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-m", "principal_attention", "evaluate", *map(str, options)]
    process = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
    path = tmp_path / "killed" / "outcomes-0.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not path.exists() or path.read_text().count("\n") < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 3 <= path.read_text().count("\n") < 24  # 12 batches, of gradients and of pgd
    principal(*options, tmp_path / "killed")
    principal(*options, tmp_path / "whole")
    assert without_time(tmp_path / "killed") == without_time(tmp_path / "whole")


def test_two_processes_find_what_one_finds(folder, trained, tmp_path):
    options = [
        trained, "--data", folder, "--suite", "clean,corruptions,attacks", "--corruptions", "glass_blur",
        "--severities", 2, "--attacks", "pgd,square", "--steps", 3, "--batch-size", 8, "--out",
    ]  # fmt: skip
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "principal_attention", "evaluate", *map(str, options), str(tmp_path / "two")]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    principal(*options, tmp_path / "one")
    assert len(list((tmp_path / "two").glob("outcomes-*.jsonl"))) == 2
    one, two = (sorted(without_time(tmp_path / name), key=str) for name in ("one", "two"))
    assert one == two


def test_a_line_that_a_kill_cut_short_is_written_again(tmp_path):
    outcomes = Outcomes(tmp_path)
    key = key_of({"suite": "clean", "case": "clean", "n": 4})
    outcomes.append(key, 0, {"index": [3, 1], "label": [0, 0], "predicted": [0, 1]}, 0.1)
    with open(outcomes.path, "ab") as file:
        file.write('{"case": "donné'.encode()[:-1])  # in the middle of a UTF-8 character
    assert outcomes.done() == {(key, 0)}
    assert outcomes.results() == []
    outcomes = Outcomes(tmp_path)  # opened by the resuming process
    outcomes.append(key, 1, {"index": [0, 2], "label": [1, 1], "predicted": [1, 1]}, 0.1)
    (result,) = outcomes.results()
    assert result.columns["index"].tolist() == [0, 1, 2, 3]
    assert right(result).tolist() == [True, False, True, True]


def test_a_subset_is_stratified_and_nested():
    labels = [0] * 50 + [1] * 30 + [2] * 3 + [3] * 17
    order = stratified(labels)
    assert sorted(order) == list(range(100))
    for count in (4, 8, 12):
        assert sorted(np.bincount([labels[i] for i in order[:count]]).tolist()) == [count // 4] * 4
    assert np.bincount([labels[i] for i in order[:42]]).tolist() == [13, 13, 3, 13]  # one class has no more images
    assert stratified(labels) == order
    assert stratified([]) == []


def test_the_same_images_are_compared(folder, trained, pursuing, tmp_path):
    options = ["--data", folder, "--suite", "clean,attacks", "--attacks", "fgsm", "--eps", "8/255", "--limit", 24]
    principal(trained, *options, "--out", tmp_path / "sym")
    out = principal(pursuing, *options, "--out", tmp_path / "rpc", "--against", tmp_path / "sym")
    assert "difference to sym on the same examples" in out
    assert "McNemar" in out
    first, second = (Outcomes(tmp_path / name).results() for name in ("sym", "rpc"))
    by_case = [{r.description["case"]: r for r in results} for results in (first, second)]
    assert by_case[0]["fgsm"].columns["index"].tolist() == by_case[1]["fgsm"].columns["index"].tolist()
    apart = (right(by_case[1]["fgsm"]).mean() - right(by_case[0]["fgsm"]).mean()) * 100
    assert f"{apart:+.1f}" in out
    assert "have no comparable case in common" in principal(
        pursuing, "--data", folder, "--limit", 8, "--out", tmp_path / "other", "--against", tmp_path / "sym", code=1
    )


def test_adaptive_attacks_and_their_worst(folder, trained, pursuing, tmp_path):
    principal(
        pursuing, "--data", folder, "--suite", "attacks", "--attacks", "pgd,noise", "--eps", "3/255", "--steps", 4,
        "--gradients", "own,straight,infinite,transfer", "--source", trained, "--limit", 20, "--out", tmp_path / "out",
    )  # fmt: skip
    found = {r["gradients"]: r["value"] for r in records(tmp_path / "out", case="pgd", metric="top1")}
    assert set(found) == {"own", "straight", "infinite", "transfer", "worst"}
    assert found["worst"] <= min(value for kind, value in found.items() if kind != "worst")
    assert records(tmp_path / "out", case="pgd", gradients="transfer")[0]["source"] == "sym"
    assert {r["gradients"] for r in records(tmp_path / "out", case="noise", metric="top1")} == {
        "own",
        "transfer",
        "worst",
    }


@pytest.mark.parametrize("kind", ["straight", "infinite"])
def test_adaptive_attacks_leave_the_model_in_evaluation_mode(pursuing, kind):
    subject = ImageSubject(str(pursuing))
    assert subject.robustify
    target = Surrogate(subject.on_pixels, kind)
    attack("fgsm", target, torch.rand(2, 3, 32, 32), torch.tensor([0, 1]))
    assert not any(module.training for module in subject.on_pixels.modules())
    images = torch.rand(2, 3, 32, 32).requires_grad_()
    torch.testing.assert_close(target(images), subject.on_pixels(images), rtol=0, atol=1e-5)


def test_the_authors_protocol_has_other_units(folder, trained, whole, tmp_path):
    """ε in normalised units is ε·std in pixels: 8/255 equals 4/255 in pixels, without clipping."""
    subject, images, labels = whole
    options = ["--data", folder, "--suite", "attacks", "--attacks", "fgsm", "--protocol", "authors"]
    principal(trained, *options, "--eps", "8/255", "--out", tmp_path / "out")
    (found,) = records(tmp_path / "out", case="fgsm", metric="top1")
    own = subject.on_pixels(images).argmax(1)  # the attack moves away from the model's predictions
    changed = attack("fgsm", subject.on_pixels, images, own, eps=4 / 255)
    assert found["value"] == pytest.approx((subject.on_pixels(changed).argmax(1) == labels).double().mean().item())
    assert found["protocol"] == "authors"
    principal(trained, *options, "--limit", 4, "--out", tmp_path / "default")
    budgets = [r["eps"] for r in records(tmp_path / "default", case="fgsm", metric="top1")]
    assert budgets == [i / 255 for i in range(1, 7)]


def test_names_decide_what_a_class_is(folder, trained, tmp_path):
    """A folder with fewer classes is numbered as in the model."""
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "rings").symlink_to(folder / "val" / "rings")
    (tmp_path / "few" / "dots").symlink_to(folder / "val" / "dots")
    principal(trained, "--data", tmp_path / "few", "--out", tmp_path / "out")
    (found,) = records(tmp_path / "out", metric="top1")
    assert found["n"] == 30
    assert found["value"] > 0.7


def test_names_that_contradict_are_refused(folder, trained, tmp_path):
    for name, given in zip(("aaa", "bars", "dots", "rings"), ("plain", "bars", "dots", "rings"), strict=True):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / name).symlink_to(folder / "val" / given)
    assert "expected data with classes of the model" in principal(trained, "--data", tmp_path / "data", code=1)


def test_a_hugging_face_classifier(folder, tmp_path):
    from transformers import ViTConfig, ViTForImageClassification, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        num_labels=4, id2label=dict(enumerate(["rings", "plain", "dots", "bars"])),
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(tmp_path / "hf")
    principal(f"hf:{tmp_path / 'hf'}", "--data", folder, "--suite", "clean,attacks", "--attacks", "fgsm", "--limit", 8,
              "--out", tmp_path / "out")  # fmt: skip
    assert len(records(tmp_path / "out", metric="top1")) == 2
    assert ImageSubject(f"hf:{tmp_path / 'hf'}").classifier.labels == ("rings", "plain", "dots", "bars")
    model = ViTForImageClassification(config)
    pa.robustify(model, pursuit=pa.Pursuit(2, 0.3, "cleaned"))
    model.save_pretrained(tmp_path / "rpc")
    assert ImageSubject(f"hf:{tmp_path / 'rpc'}").robustify
    assert ImageSubject(f"hf:{tmp_path / 'hf'}").robustify is None
    ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "headless")
    said = principal(f"hf:{tmp_path / 'headless'}", "--data", folder, code=1)
    assert "has no weights for classifier.weight: fine-tune it first" in said


def test_other_data_of_the_same_name_are_other_cases(folder, trained, tmp_path):
    """Different data do not reuse numbers, although the default --out is the same for all data of a model."""
    wrong = tmp_path / folder.name / "val"
    for name, given in zip(("bars", "dots", "plain", "rings"), ("dots", "plain", "rings", "bars"), strict=True):
        (wrong / name).parent.mkdir(parents=True, exist_ok=True)
        (wrong / name).symlink_to(folder / "val" / given)
    for data in (folder, tmp_path / folder.name):
        principal(trained, "--data", data, "--out", tmp_path / "out")
    first, second = records(tmp_path / "out", metric="top1")
    assert first["data"] == second["data"]
    assert first["value"] > 0.8
    assert second["value"] < 0.2


def test_another_model_or_batch_size_needs_another_folder(folder, trained, pursuing, tmp_path):
    options = ["--data", folder, "--limit", 8, "--out", tmp_path / "out"]
    principal(trained, *options)
    assert "choose another --out" in principal(pursuing, *options, code=1)
    assert "--batch-size 50, not 4" in principal(trained, *options, "--batch-size", 4, code=1)
    for content in ("{", "[1]"):
        (tmp_path / "out" / "evaluation.json").write_text(content)
        assert "is damaged" in principal(trained, *options, code=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--suite", "clean,cleen"],
            "no suite of image classifiers 'cleen'; expected one of clean, corr",
        ),
        (["--suite", "corruptions", "--corruptions", "rain"], "there is no corruption 'rain'"),
        (["--suite", "corruptions", "--severities", "0"], "there is no severity '0'"),
        (["--suite", "attacks", "--attacks", "nuke"], "there is no attack 'nuke'"),
        (["--suite", "attacks", "--eps", "1/0"], "expected numbers or fractions"),
        (["--suite", "attacks", "--eps", "-1"], "expected numbers above 0"),
        (["--suite", "attacks", "--eps", "1e400"], "expected numbers or fractions"),
        (["--suite", ","], "no suite of image classifiers was named"),
        (["--against", "/nowhere"], "/nowhere holds no evaluation"),
        (["--suite", "attacks", "--gradients", "straight"], "models with RPC-Attention; sym has no RPC-Attention"),
        (["--suite", "attacks", "--gradients", "transfer"], "must be given together"),
        (["--suite", "attacks", "--attacks", "square", "--protocol", "authors"], "--protocol authors is for fgsm"),
        (["--suite", "ood"], "holds none of imagenet-a"),
        (["--split", "nowhere"], "has no split 'nowhere'"),
        (["--frost-dir", "/nowhere", "--suite", "corruptions"], "holds no pictures of frost"),
    ],
)
def test_bad_options_get_a_sentence(folder, trained, tmp_path, arguments, sentence):
    out = principal(trained, "--data", folder, *arguments, "--out", tmp_path / "out", code=1)
    assert sentence in " ".join(out.split())
    assert "Traceback" not in out


def test_bad_models_and_data_get_a_sentence(folder, trained, tmp_path):
    assert "expected timm:NAME@weights" in principal(tmp_path, "--data", folder, code=1)
    assert "--data is missing" in principal(trained, code=1)
    assert "there is nothing at" in principal(trained, "--data", "/nowhere/at/all", code=1)
    (tmp_path / "data" / "weird" / "x").mkdir(parents=True)
    assert "neither parquet nor images" in principal(trained, "--data", tmp_path / "data", code=1)
    strange = tmp_path / "strange" / "zebra"
    strange.mkdir(parents=True)
    (strange / "broken.png").write_bytes(b"no image")
    assert "expected data with classes of the model" in principal(trained, "--data", tmp_path / "strange", code=1)
    (tmp_path / "strange" / "zebra").rename(tmp_path / "strange" / "rings")
    assert "cannot be read" in principal(trained, "--data", tmp_path / "strange", "--out", tmp_path / "out", code=1)


def test_a_model_without_an_answer_is_wrong():
    logits = torch.tensor([[1.0, 2.0, 0.0], [float("nan"), 0.0, 0.0], [5.0, 5.0, 1.0]])
    found = cases.answers(logits, torch.tensor([1, 0, 1]))
    assert found["predicted"] == [1, -1, 0]
    assert found["rank"] == [0, 3, 1]
    assert json.dumps(found)  # no NaN among it


def test_budgets_are_numbers_or_quotients_of_them():
    from principal_attention.plumbing.sections import split_numbers

    assert split_numbers("8/255,0.5/255,0.03") == (8 / 255, 0.5 / 255, 0.03)
