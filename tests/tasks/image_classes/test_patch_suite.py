"""The suite `patches` of `principal evaluate`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from evaluated import OPTIONS, create, fit, principal, records, save
from principal_attention.evaluation.outcomes import Outcomes, Result
from principal_attention.plumbing.files import read_jsonl
from principal_attention.tasks.classes import right
from principal_attention.tasks.image_classes.examples import Images
from principal_attention.tasks.image_classes.patch_cases import Square
from principal_attention.tasks.image_classes.patch_checks import check_patches
from principal_attention.tasks.image_classes.patch_training import UniversalPatch, training_images
from principal_attention.tasks.image_classes.subject import ImageSubject
from principal_attention.vision.attacks.patches import attack_patches
from principal_attention.vision.data import open_split

QUICK = ["--suite", "patches", "--patch", 8, "--steps", 4]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another SymViT of the same classes."""
    torch.manual_seed(1)
    return save(fit(create("symvit_tiny_patch16_224", **OPTIONS)), tmp_path_factory.mktemp("models") / "other")


def by_case(folder):
    return {result.description["case"]: result for result in Outcomes(folder).results()}


def levels(picture):
    with Image.open(picture) as image:
        return np.asarray(image)


def test_the_numbers_are_those_of_the_pieces(folder, trained, tmp_path):
    """pgd by the command equals attack_patches on the images in one batch."""
    out = principal(trained, "--data", folder, *QUICK, "--batch-size", 7, "--out", tmp_path / "out")
    subject = ImageSubject(str(trained))
    images = Images(open_split(str(folder)), subject.view, subject.classifier.labels)
    (batch,) = images.batches(len(images), [0], 0)
    clean = subject.on_pixels(batch.images).argmax(1) == batch.labels
    square = Square(8, "random", 1, None, 0)
    chosen = clean.nonzero().flatten()
    indices = [batch.indices[i] for i in chosen.tolist()]
    corners = square.corners(batch.images[chosen], indices)
    found = attack_patches(
        subject.on_pixels, batch.images[chosen], batch.labels[chosen], corners, size=8, steps=4, indices=indices
    )
    left = subject.on_pixels(found.images).argmax(1) == batch.labels[chosen]
    (one,) = records(tmp_path / "out", case="pgd", metric="top1")
    # a rounding that differs between batches can change a sign of the gradient, and with it one image
    assert one["value"] == pytest.approx(left.sum().item() / 60, abs=1.01 / 60)
    assert {key: one[key] for key in ("suite", "patch", "steps", "restarts", "placement", "start", "seed", "n")} == {
        "suite": "patches", "patch": 8, "steps": 4, "restarts": 1, "placement": "random", "start": "both", "seed": 0,
        "n": 60,
    }  # fmt: skip
    assert 0 < one["value"] < clean.double().mean()
    result = by_case(tmp_path / "out")["pgd"]
    attacked = result.columns["made"] != ""
    assert attacked.sum() == clean.sum()
    assert set(result.columns["made"][attacked]) <= {"image", "noise"}
    order = np.argsort(indices)
    expected = np.stack([corners[i, 0].numpy() for i in order])
    assert (np.stack([result.columns["row"], result.columns["column"]], 1)[attacked] == expected).all()
    assert (result.columns["row"][~attacked] == -1).all()
    (worst,) = records(tmp_path / "out", case="worst", metric="top1")
    garbage = by_case(tmp_path / "out")["garbage"]
    assert worst["value"] == (right(result) & right(garbage)).mean() <= one["value"]
    assert worst["cases"] == "pgd,garbage"
    for text in ("8×8, random place, 4 steps, 1 restart, image and noise start", "1 draw", "✓ pgd (8×8): 0 of",
                 "✓ garbage (8×8) breaks"):  # fmt: skip
        assert text in out, out


@pytest.mark.parametrize("placement", [["random"], ["worst", "--places", 3], ["fixed", "--corner", "24,3"]])
def test_places_are_the_same_for_every_model_and_batch(folder, trained, other, tmp_path, placement):
    options = [*QUICK, "--steps", 1, "--data", folder, "--patch-attacks", "pgd", "--limit", 24]
    options += ["--placement", *placement]
    principal(trained, *options, "--out", tmp_path / "a")
    principal(trained, *options, "--out", tmp_path / "b", "--batch-size", 5)
    out = principal(other, *options, "--out", tmp_path / "c", "--against", tmp_path / "a")
    assert "difference to" in out
    a, b, c = (by_case(tmp_path / name)["pgd"].columns for name in "abc")
    for x in (b, c):
        assert (a["index"] == x["index"]).all()
        both = (a["row"] >= 0) & (x["row"] >= 0)
        assert both.sum() > 10
        if placement[0] != "worst" or x is b:  # the worst of the same places may differ between models
            same = (a["row"] == x["row"])[both] & (a["column"] == x["column"])[both]
            assert same.mean() > 0.9 if placement[0] == "worst" else same.all()
    if placement[0] == "fixed":
        assert {(r, q) for r, q in zip(a["row"], a["column"], strict=True)} <= {(24, 3), (-1, -1)}


def test_patches_are_transferred_learnt_and_made_of_garbage(folder, trained, other, tmp_path):
    options = [*QUICK, "--data", folder, "--limit", 24, "--source", other, "--universal-data", folder,
               "--universal-images", 30, "--universal-steps", 6, "--placement", "worst", "--places", 2]  # fmt: skip
    out = principal(trained, *options, "--out", tmp_path / "out")
    found = by_case(tmp_path / "out")
    assert set(found) == {"pgd", "transfer", "universal", "garbage"}
    for each in found.values():
        assert ((each.columns["made"] == "") == (found["pgd"].columns["made"] == "")).all()
    assert set(found["garbage"].columns["made"]) <= {"", "noise", "stripes", "piece"}
    assert set(found["universal"].columns["made"]) - {""} == {"universal"}
    assert right(found["pgd"]).mean() < right(found["transfer"]).mean()
    told = found["universal"].description
    assert (told["universal_images"], told["steps"]) == (30, 6)
    (picture,) = (tmp_path / "out").glob("universal-8px-*.png")
    assert levels(picture).shape == (8, 8, 3)
    for text in ("from other", "learnt on 30 images", "transfer (8×8) breaks", "pgd, transfer, universal, garbage"):
        assert text in out, out
    values = {r["case"]: r["value"] for r in records(tmp_path / "out", metric="top1")}
    assert values["worst"] <= min(values.values())
    # resumed without the last lines: the saved patch is read, not learnt again
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(picture)
    path = tmp_path / "out" / "outcomes-0.jsonl"
    lines = [
        line for line in path.read_text().splitlines() if json.loads(json.loads(line)["case"])["case"] != "universal"
    ]
    path.write_text("".join(line + "\n" for line in lines))
    principal(trained, *options, "--out", tmp_path / "out")
    assert not levels(picture).any()
    again = by_case(tmp_path / "out")["universal"]
    assert not np.array_equal(again.columns["confidence"], found["universal"].columns["confidence"])


def test_a_universal_patch_is_learnt_on_images_that_are_not_evaluated(folder, trained, tmp_path):
    subject = ImageSubject(str(trained))
    images = Images(open_split(str(folder)), subject.view, subject.classifier.labels)
    training = training_images(subject, str(folder), None, 20, images, 40)
    assert not {int(i) for i in images.order[:40]} & set(training.indices)
    square = Square(8, "random", 1, None, 0)
    learnt = UniversalPatch(square, 5, training, tmp_path)(subject)
    assert torch.equal(UniversalPatch(square, 5, training, tmp_path)(subject), learnt)  # read from the PNG
    assert torch.equal(UniversalPatch(square, 5, training, None)(subject), learnt)  # learnt again
    assert len(list(tmp_path.iterdir())) == 1
    UniversalPatch(square, 6, training, tmp_path)(subject)
    assert len(list(tmp_path.iterdir())) == 2  # other settings, another file
    principal(
        trained, "--data", folder, *QUICK, "--universal-data", folder, "--universal-images", 21, "--limit", 40,
        "--out", tmp_path / "out", code=1,
    )  # fmt: skip


def test_restarts_and_a_second_start_add_to_what_one_breaks(folder, trained, tmp_path):
    options = [
        "--data",
        folder,
        *QUICK,
        "--patch",
        6,
        "--patch-attacks",
        "pgd",
        "--limit",
        32,
        "--out",
        tmp_path / "out",
    ]
    principal(trained, *options)
    principal(trained, *options, "--restarts", 2)
    principal(trained, *options, "--start", "noise")
    principal(trained, *options, "--steps", 8)
    value = {
        (r["restarts"], r["start"], r["steps"]): r["value"]
        for r in records(tmp_path / "out", case="pgd", metric="top1")
    }
    assert value[2, "both", 4] <= value[1, "both", 4]
    assert value[1, "both", 4] <= value[1, "noise", 4]
    (check,) = records(tmp_path / "out", metric="check", case="as the steps grow")
    assert check["value"] == 1
    assert "top-1 with 4, 8 steps" in check["sentence"]
    (worst,) = records(tmp_path / "out", case="worst", metric="top1")
    assert worst["value"] <= min(value.values())


def result(case, correct, **told):
    n = len(correct)
    columns = {
        "index": np.arange(n), "label": np.zeros(n, int), "predicted": np.array([0 if c else 1 for c in correct]),
        "gradient": np.array(told.pop("gradient", [1.0] * n)),
    }  # fmt: skip
    pinned = {"suite": "patches", "case": case, "n": n, "patch": 8, "placement": "random", "seed": 0, **told}
    return Result(pinned, columns, [], 1.0)


def test_masked_gradients_are_noticed():
    good = [True] * 5 + [False] * 5
    pgd = result("pgd", good, steps=10, gradient=[0.0, 1.0] + [-1.0] * 8)
    more = result("pgd", [True] * 7 + [False] * 3, steps=100)
    fine = result("garbage", [True] * 10)
    found = {(c["case"], c["sentence"]): c["value"] for c in check_patches("m", [pgd, more, fine])}
    assert found == {
        ("zero gradients", "pgd (8×8): 1 of 2 attacked images have a gradient in the patch that is zero or NaN"): 0,
        ("zero gradients", "pgd (8×8): 0 of 10 attacked images have a gradient in the patch that is zero or NaN"): 1,
        ("black box", "garbage (8×8) breaks 0 of 10 images that pgd do not"): 1,
        ("as the steps grow", "pgd (8×8): top-1 with 10, 100 steps: 50.0 → 70.0"): 0,
    }
    (bad,) = [c for c in check_patches("m", [pgd, result("garbage", [False] * 10)]) if c["case"] == "black box"]
    assert bad["value"] == 0
    assert "breaks 5 of 10" in bad["sentence"]
    apart = check_patches("m", [pgd, result("garbage", [False] * 10, data="others")])
    assert "black box" not in {c["case"] for c in apart}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--patch", 40], "the patch has a side of 40 pixels; expected 1 to 32"),
        (["--patch", "0"], "side of 0 pixels"),
        (["--patch", "1.5"], "--patch is 1.5; expected sides in pixels as whole numbers"),
        (["--patch", ","], "--patch is empty"),
        (["--steps", 0], "--steps is '0'"),
        (["--restarts", 0], "--restarts is '0'"),
        (["--start", "black"], "--start is 'black'"),
        (["--placement", "middle"], "--placement is 'middle'"),
        (["--placement", "fixed"], "--placement fixed and --corner ROW,COLUMN must be given together"),
        (["--corner", "0,0"], "--placement fixed and --corner ROW,COLUMN must be given together"),
        (["--placement", "fixed", "--corner", "25,0"], "the corner of the patch is 25,0; expected 0,0 to 24,24"),
        (["--placement", "fixed", "--corner", "here"], "--corner is here; expected a row and a column"),
        (["--places", 3], "--places is for --placement worst"),
        (["--patch-attacks", "transfer"], "--patch-attacks transfer and --source must be given together"),
        (["--patch-attacks", "pgd", "--source", "x"], "--patch-attacks transfer and --source must be given together"),
        (["--patch-attacks", "universal"], "--patch-attacks universal and --universal-data must be given together"),
        (["--universal-split", "train"], "--universal-split was given without --universal-data"),
        (["--universal-steps", 9], "--universal-steps was given without --universal-data"),
        (["--patch-attacks", "evade"], "evade is for models with token pursuit"),
        (["--patch-attacks", "pdg"], "there is no patch attack 'pdg'"),
        (["--source-robustify", "lam=1"], "--source-robustify was given without --source"),
        (["--universal-data", "FOLDER", "--universal-images", 500], "--universal-images is 500 and"),
    ],
)
def test_bad_options_are_named(folder, trained, tmp_path, options, says):
    options = [str(folder) if x == "FOLDER" else x for x in options]
    base = ["--suite", "patches", "--data", folder, "--out", tmp_path / "out"]
    base += [] if "--patch" in options else ["--patch", 8]
    out = " ".join(principal(trained, *base, *options, code=1).split())
    assert says in out, out
    assert not (tmp_path / "out").exists()


def test_every_record_names_its_setting(folder, trained, tmp_path):
    principal(trained, "--data", folder, *QUICK, "--limit", 8, "--patch", "6,8", "--out", tmp_path / "out")
    found = read_jsonl(tmp_path / "out" / "records.jsonl")
    assert {(r["case"], r["patch"]) for r in found} == {
        (case, side) for side in (6, 8) for case in ("pgd", "garbage", "worst", "zero gradients", "black box")
    }
    assert all(r["seed"] == 0 and r["task"] == "images" for r in found)
