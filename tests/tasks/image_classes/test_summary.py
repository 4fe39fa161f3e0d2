"""mCE, AUPR and intervals from outcomes; for each check for masked gradients, a case that fails it."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from principal_attention.evaluation.outcomes import Result
from principal_attention.tasks.classes import interval
from principal_attention.tasks.image_classes import KIND
from principal_attention.tasks.image_classes.protocols import budget
from principal_attention.tasks.image_classes.published import NEGATIVES
from principal_attention.tasks.image_classes.summary import ALEXNET, ALEXNET_CLEAN
from principal_attention.vision.corruptions import CORRUPTIONS, SEVERITIES

N = 100_000  # so that shares of images are exact to five digits


def result(right, **told):
    """Result of a case with these correct (True) and wrong answers."""
    right = np.asarray(right, dtype=bool)
    n = len(right)
    columns = {
        "index": np.arange(n), "label": np.zeros(n, int), "predicted": (~right).astype(int),
        "rank": (~right).astype(int), "confidence": np.full(n, 0.5), "size": np.full(n, told.pop("size", 0.01)),
    }  # fmt: skip
    flags = told.pop("flags", [])
    return Result({"n": n, "data": "some", **told}, columns, flags, 60.0)


def share(wrong, n=N):
    return np.arange(n) >= round(wrong * n)


def attacked(case, right, eps=1 / 255, **told):
    pinned = {"norm": "linf", "protocol": "pixel", "gradients": "own", "seed": 0}
    return result(right, suite="attacks", case=case, eps=eps, **pinned | told)


def summarise(model, results, classes=1000):
    """Records of all image suites for these results."""
    subject = SimpleNamespace(name=model, view=SimpleNamespace(num_classes=classes))
    return [each for suite in KIND.suites.values() for each in suite.summarise(subject, results)]


def one(records, **wanted):
    (found,) = [r for r in records if all(r.get(key) == x for key, x in wanted.items())]
    return found


def test_alexnet_has_an_mce_of_one():
    errors = [(name, severity, ALEXNET[name]) for name in CORRUPTIONS for severity in SEVERITIES]
    results = [result(share(ALEXNET_CLEAN), suite="clean", case="clean")] + [
        result(share(error), suite="corruptions", case=name, severity=severity, seed=0)
        for name, severity, error in errors
    ]
    records = summarise("alexnet", results)
    assert one(records, metric="mce")["value"] == pytest.approx(1, abs=2e-5)
    assert one(records, metric="relative_mce")["value"] == pytest.approx(1, abs=2e-4)
    assert one(records, metric="ce", case="fog")["value"] == pytest.approx(1, abs=2e-5)
    assert not [r for r in summarise("alexnet", results[:-1]) if r["metric"] in ("mce", "ce")]  # one case is missing
    assert not [r for r in summarise("alexnet", results, classes=10) if r["metric"] in ("mce", "ce")]  # not ImageNet


def test_what_was_measured_otherwise_is_another_mce():
    """Different frost textures and different data are separate groups; published corruptions have a clean set with
    another name."""
    every = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]

    def measured(wrong, **more):
        return [
            result(share(wrong, 100), suite="corruptions", case=name, severity=severity, seed=0, **more)
            for name, severity in every
        ]

    made = [each for each in measured(0.5) if each.description["case"] != "frost"]
    frost = [
        result(share(wrong, 100), suite="corruptions", case="frost", severity=severity, seed=0, textures=textures)
        for textures, wrong in (("made", 0.2), ("given", 0.8)) for severity in SEVERITIES
    ]  # fmt: skip
    found = {r["textures"]: r["value"] for r in summarise("m", [*made, *frost]) if r["metric"] == "mce"}
    assert found["given"] - found["made"] == pytest.approx(0.6 / ALEXNET["frost"] / 15)
    two = summarise("m", measured(0.2, data_id="a") + measured(0.4, data_id="b"))
    first, second = (r["value"] for r in two if r["metric"] == "mce")
    assert second == pytest.approx(2 * first)
    clean = result(share(0.3, 100), suite="clean", case="clean")
    published = [result(share(0.5, 100), suite="corruptions", case=n, severity=s, source="published") for n, s in every]
    for each in published:
        each.description["data"] = "imagenet-c"
    assert one(summarise("m", [clean, *published]), metric="relative_mce")["value"] > 0


def test_mce_is_the_mean_of_ratios_not_the_ratio_of_means():
    results = [
        result(share(0.5 if severity < 5 else 0.9, 1000), suite="corruptions", case=name, severity=severity, seed=0)
        for name in CORRUPTIONS for severity in SEVERITIES
    ]  # fmt: skip
    found = one(summarise("half", results), metric="mce")["value"]
    assert found == pytest.approx(np.mean([0.58 / error for error in ALEXNET.values()]))


def test_aupr_takes_imagenet_o_for_positive():
    random = np.random.default_rng(0)
    strange, known = random.uniform(0.1, 0.8, 50), random.uniform(0.3, 1.0, 80)
    results = [result([True] * n, suite="ood", case=case) for n, case in ((50, "imagenet-o"), (80, NEGATIVES))]
    for each, values in zip(results, (strange, known), strict=True):
        each.columns["confidence"] = values
    found = one(summarise("model", results), metric="aupr")
    truth = [1] * 50 + [0] * 80
    assert found["value"] == pytest.approx(average_precision_score(truth, [-x for x in (*strange, *known)]))
    assert (found["n"], found["negatives"]) == (50, 80)
    assert summarise("model", results[:1]) == []


def test_wilsons_interval():
    """For 5 in 10: (0.2366, 0.7634); unlike the normal interval, it stays within [0, 1]."""
    assert interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert interval(0, 10)[0] == 0
    assert 0 < interval(0, 10)[1] < 0.35


def test_the_worst_of_several_gradients_is_by_image():
    own = attacked("pgd", [True, True, False, False])
    other = attacked("pgd", [True, False, True, False], gradients="infinite")
    assert one(summarise("m", [own, other]), gradients="worst")["value"] == 0.25


def told(results):
    subject = SimpleNamespace(name="model")
    return [(bool(each["value"]), each["sentence"]) for each in KIND.suites["attacks"].checks(subject, results)]


def test_a_black_box_that_finds_more_is_reported():
    white, black = attacked("pgd", share(0.3, 100)), attacked("square", share(0.6, 100))
    assert told([white, black]) == [
        (False, "ε = 1/255: square, without gradients, breaks 30 of 100 images that pgd do not")
    ]
    assert told([white, attacked("square", share(0.2, 100))])[0][0]
    few = attacked("square", [True] * 10)  # on a part of the images only
    few.columns["index"] = np.arange(90, 100)
    assert told([white, few])[0] == (
        True,
        "ε = 1/255: square, without gradients, breaks 0 of 10 images that pgd do not",
    )
    assert told([attacked("square", [True])]) == []  # nothing to compare with
    assert told([white, attacked("square", share(0.6, 100), eps=2 / 255)]) == []
    assert told([white, attacked("square", share(0.6, 100), data_id="other")]) == []
    assert told([attacked("pgd", share(0.3, 100), gradients="transfer"), attacked("square", share(0.6, 100))]) == []


def test_accuracy_that_grows_with_the_budget_or_the_steps_is_reported():
    growing = [attacked("pgd", share(wrong, 100), eps=eps, steps=20) for eps, wrong in ((1 / 255, 0.5), (2 / 255, 0.3))]
    assert told(growing) == [(False, "pgd (pixel, own gradients): top-1 as ε grows: 50.0 → 70.0")]
    falling = [attacked("pgd", share(wrong, 100), steps=steps) for steps, wrong in ((10, 0.5), (100, 0.6))]
    assert told(falling) == [(True, "pgd (pixel, own gradients): top-1 as the steps grow: 50.0 → 40.0")]
    assert told([growing[0], attacked("pgd", share(0.1, 50), eps=2 / 255, steps=20)]) == []  # other images
    for each in growing:  # moving away from a wrong answer can lead to the correct one
        each.description["protocol"] = "authors"
    assert told(growing) == []


def test_zero_gradients_and_autoattacks_flags_are_reported():
    good = result([True] * 4, suite="attacks", case="gradients", protocol="pixel")
    assert [passed for passed, _ in told([good])] == [True, True]
    bad = result([True] * 4, suite="attacks", case="gradients", protocol="pixel", size=0.0, flags=["it is random"])
    assert told([bad]) == [
        (False, "4 of 4 images have a gradient that is zero or NaN"), (False, "AutoAttack's own checks: it is random")
    ]  # fmt: skip
    broken = result([True] * 4, suite="attacks", case="gradients", protocol="pixel", size=float("nan"))
    assert not told([broken])[0][0]


def test_budgets_are_read_in_levels():
    given = (1 / 255, 8 / 255, 0.25 / 255, 0.5 / 255, 0.3, 0.5, 10.0)
    assert [budget(x) for x in given] == ["1/255", "8/255", "0.25/255", "0.5/255", "0.3", "0.5", "10"]
