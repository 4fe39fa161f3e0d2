"""From what was found of every image to records: accuracies with their intervals, mCE, AUPR."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from ..plumbing.records import record
from ..vision.corruptions import CORRUPTIONS, SEVERITIES
from .outcomes import NEGATIVES, Result
from .results import corruption_groups, interval, of_result, top1

# AlexNet's errors on ImageNet-C, over all five severities, and on ImageNet (torchvision's weights)
ALEXNET = {
    "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640, "defocus_blur": 0.819880,
    "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360, "snow": 0.866816, "frost": 0.826572,
    "fog": 0.819324, "brightness": 0.564592, "contrast": 0.853204, "elastic_transform": 0.646056,
    "pixelate": 0.717840, "jpeg_compression": 0.606500,
}  # fmt: skip
ALEXNET_CLEAN = 1 - 0.56522
MADE_BY = ("gradients", "source", "source_weights")  # what tells attacks apart that differ in their gradients alone


def summarise(model: str, results: Sequence[Result], *, imagenet: bool = True) -> list[dict[str, Any]]:
    """`imagenet` says whether AlexNet's errors are of the same task: mCE has no meaning for another."""
    records = []
    for result in results:
        if result.description["case"] == "gradients":
            value = float((~(result.columns["size"] > 0)).mean())
            records.append(of_result(model, result, "zero_gradient_share", value))
        elif result.answers:
            records += _accuracies(model, result)
    errors = _corruption_errors(model, records) if imagenet else []
    return [*records, *_worst(model, results), *errors, *_aupr(model, results)]


def _accuracies(model: str, result: Result) -> list[dict[str, Any]]:
    records = [top1(model, result)]
    if result.description["suite"] in ("clean", "corruptions"):
        records.append(of_result(model, result, "top5", float((result.columns["rank"] < 5).mean())))
    if result.description["suite"] == "attacks":
        sizes = result.columns["size"]
        broken = sizes[~result.right & (sizes > 0)]
        if len(broken):
            records.append(of_result(model, result, "median_size", float(np.median(broken))))
    return records


def _worst(model: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """An image counts as right only if it survives every source of gradients that was tried."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        if result.description.get("gradients"):
            pinned = {key: x for key, x in result.description.items() if key not in MADE_BY}
            groups.setdefault(tuple(sorted(pinned.items(), key=str)), []).append(result)
    records = []
    for group in groups.values():
        if len(group) > 1:
            right = np.logical_and.reduce([result.right for result in group])
            low, high = interval(int(right.sum()), len(right))
            told = {key: x for key, x in group[0].description.items() if key not in MADE_BY} | {"gradients": "worst"}
            merged = Result(told, group[0].columns, [], sum(result.seconds for result in group))
            records.append(of_result(model, merged, "top1", float(right.mean()), low=low, high=high))
    return records


def _corruption_errors(model: str, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """mCE as it is defined: fifteen kinds, five severities, each kind's error over AlexNet's. In fractions."""
    made = []
    for told, cases in corruption_groups(records):
        if set(cases) < {(name, severity) for name in CORRUPTIONS for severity in SEVERITIES}:
            continue
        errors = {name: np.mean([1 - cases[name, s] for s in SEVERITIES]) for name in CORRUPTIONS}
        ce = {name: float(errors[name] / ALEXNET[name]) for name in CORRUPTIONS}
        made += [record(model, "corruptions", name, "ce", value, **told) for name, value in ce.items()]
        made.append(record(model, "corruptions", "mean", "mce", float(np.mean(list(ce.values()))), **told))
        clean = [each for each in records if each["suite"] == "clean" and each["metric"] == "top1"]
        if told["source"] != "published":  # its clean images are another set: the largest that was measured
            clean = [each for each in clean if all(each.get(key) == told[key] for key in ("n", "data", "data_id"))]
        if clean:
            base = 1 - max(clean, key=lambda each: each["n"])["value"]
            relative = [(errors[name] - base) / (ALEXNET[name] - ALEXNET_CLEAN) for name in CORRUPTIONS]
            made.append(record(model, "corruptions", "mean", "relative_mce", float(np.mean(relative)), **told))
    return made


def _aupr(model: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """How well −confidence tells ImageNet-O (positive) from ImageNet: the average precision."""
    made = []
    for positive in results:
        for negative in results:
            cases = positive.description["case"], negative.description["case"]
            limits = positive.description.get("limit"), negative.description.get("limit")
            if cases == ("imagenet-o", NEGATIVES) and limits[0] == limits[1]:
                strange, known = positive.columns["confidence"], negative.columns["confidence"]
                truth = np.r_[np.ones(len(strange)), np.zeros(len(known))]
                value = float(average_precision_score(truth, -np.r_[strange, known]))
                made.append(of_result(model, positive, "aupr", value, negatives=len(known)))
    return made
