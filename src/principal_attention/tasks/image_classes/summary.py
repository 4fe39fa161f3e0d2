"""Records and tables from the outcomes of all images: accuracies with intervals, mCE, AUPR."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from ...evaluation.outcomes import Result
from ...evaluation.results import of_result
from ...evaluation.suite import Record, Rows
from ...plumbing.records import record
from ...vision.corruptions import CORRUPTIONS, SEVERITIES
from ..classes import interval, right, top1
from .published import NEGATIVES

# AlexNet's errors on ImageNet-C, over all five severities, and on ImageNet (torchvision's weights)
ALEXNET = {
    "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640, "defocus_blur": 0.819880,
    "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360, "snow": 0.866816, "frost": 0.826572,
    "fog": 0.819324, "brightness": 0.564592, "contrast": 0.853204, "elastic_transform": 0.646056,
    "pixelate": 0.717840, "jpeg_compression": 0.606500,
}  # fmt: skip
ALEXNET_CLEAN = 1 - 0.56522
SAME = ("n", "data", "data_id", "seed", "source")  # keys that the corruptions of one table share
MADE_BY = ("gradients", "source", "source_weights")  # keys in which attacks with different gradients differ


def accuracy_records(model: str, result: Result) -> list[Record]:
    """Records of top-1 with its interval, and of top-5."""
    return [top1(model, result), of_result(model, result, "top5", float((result.columns["rank"] < 5).mean()))]


def attack_records(model: str, results: Sequence[Result]) -> list[Record]:
    """Records of each attack's accuracy and median norm of successful perturbations, and the worst over gradients."""
    made = []
    for result in results:
        sizes = result.columns["size"]
        if result.description["case"] == "gradients":
            made.append(of_result(model, result, "zero_gradient_share", float((~(sizes > 0)).mean())))
            continue
        made.append(top1(model, result))
        broken = sizes[~right(result) & (sizes > 0)]
        if len(broken):
            made.append(of_result(model, result, "median_size", float(np.median(broken))))
    return made + _worst(model, results)


def _worst(model: str, results: Sequence[Result]) -> list[Record]:
    """Records `worst`: an image counts as correct only if it survives the attacks with all sources of gradients."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        if result.description.get("gradients"):
            pinned = {key: x for key, x in result.description.items() if key not in MADE_BY}
            groups.setdefault(tuple(sorted(pinned.items(), key=str)), []).append(result)
    records = []
    for group in groups.values():
        if len(group) > 1:
            survived = np.logical_and.reduce([right(result) for result in group])
            low, high = interval(int(survived.sum()), len(survived))
            told = {key: x for key, x in group[0].description.items() if key not in MADE_BY} | {"gradients": "worst"}
            merged = Result(told, group[0].columns, [], sum(result.seconds for result in group))
            records.append(of_result(model, merged, "top1", float(survived.mean()), low=low, high=high))
    return records


def corruption_errors(model: str, records: Sequence[Record]) -> list[Record]:
    """Records of CE, mCE and relative mCE as fractions, if all kinds and severities were measured.

    CE is the error over the five severities, divided by AlexNet's; mCE is the mean CE of the fifteen kinds.
    """
    made = []
    for told, cases in corruption_groups(records):
        if set(cases) < {(name, severity) for name in CORRUPTIONS for severity in SEVERITIES}:
            continue
        errors = {name: np.mean([1 - cases[name, s] for s in SEVERITIES]) for name in CORRUPTIONS}
        ce = {name: float(errors[name] / ALEXNET[name]) for name in CORRUPTIONS}
        made += [record(model, "corruptions", name, "ce", value, **told) for name, value in ce.items()]
        made.append(record(model, "corruptions", "mean", "mce", float(np.mean(list(ce.values()))), **told))
        clean = [each for each in records if each["suite"] == "clean" and each["metric"] == "top1"]
        if told["source"] != "published":  # with published corruptions, the largest clean set is used
            clean = [each for each in clean if all(each.get(key) == told[key] for key in ("n", "data", "data_id"))]
        if clean:
            base = 1 - max(clean, key=lambda each: each["n"])["value"]
            relative = [(errors[name] - base) / (ALEXNET[name] - ALEXNET_CLEAN) for name in CORRUPTIONS]
            made.append(record(model, "corruptions", "mean", "relative_mce", float(np.mean(relative)), **told))
    return made


def aupr(model: str, results: Sequence[Result]) -> list[Record]:
    """Average precision of −confidence in detecting ImageNet-O (positives) among ImageNet images (negatives)."""
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


def aupr_rows(records: Sequence[Record]) -> Rows:
    rows = [["case", "setting", "examples", "top-1 %", "95%", "minutes"]]
    for each in records:
        if each["metric"] == "aupr":
            what, value = f"AUPR against {each['negatives']}", f"{100 * each['value']:.1f}"
            rows.append([each["case"], what, str(each["n"]), value, "", f"{each['seconds'] / 60:.1f}"])
    return rows if len(rows) > 1 else []


def corruption_groups(records: Sequence[Record]) -> list[tuple[dict[str, Any], dict[tuple[str, int], float]]]:
    """Top-1 by kind and severity, one group per set of images, seed, source and frost texture."""
    shared: dict[tuple[Any, ...], dict[tuple[str, int], float]] = {}
    frost: dict[tuple[Any, ...], dict[str | None, dict[tuple[str, int], float]]] = {}
    for each in records:
        if each["suite"] == "corruptions" and each["metric"] == "top1":
            group = tuple(each.get(key) for key in SAME)
            cases = shared.setdefault(group, {})
            if each["case"] == "frost":
                cases = frost.setdefault(group, {}).setdefault(each.get("textures"), {})
            cases[each["case"], each["severity"]] = each["value"]
    return [
        ({**dict(zip(SAME, group, strict=True)), "textures": textures}, cases | more)
        for group, cases in shared.items()
        for textures, more in frost.get(group, {None: {}}).items()
    ]


def corruption_tables(records: Sequence[Record]) -> list[tuple[str, Rows]]:
    """Tables with one row per kind and one column per severity; then the mean, and CE and mCE if defined."""
    tables = []
    for told, found in corruption_groups(records):
        severities = sorted({severity for _, severity in found})
        same = [each for each in records if all(each.get(key) == x for key, x in told.items())]
        ce = {each["case"]: each["value"] for each in same if each["metric"] in ("ce", "mce")}
        rows = [["corruption", *(f"severity {s}" for s in severities), *(["CE"] if ce else [])]]
        for name in CORRUPTIONS:
            if any((name, s) in found for s in severities):
                cells = [f"{100 * found[name, s]:.1f}" if (name, s) in found else "–" for s in severities]
                rows.append([name, *cells, *([f"{100 * ce[name]:.1f}"] if ce else [])])
        means = [[value for (_, severity), value in found.items() if severity == s] for s in severities]
        mce = [f"{100 * ce['mean']:.1f}"] if ce else []
        rows.append(["mean", *(f"{100 * sum(values) / len(values):.1f}" for values in means), *mce])
        tables.append((f"top-1 in % under corruption, {told['n']} images of {told['data']}", rows))
    return tables
