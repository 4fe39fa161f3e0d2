"""Records `worst` of the patch suite, its checks for masked gradients, and settings as text."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...evaluation.outcomes import Result
from ...evaluation.results import check_record, of_result
from ...evaluation.suite import Record
from ..classes import interval, right
from .masking import TOLERANCE
from .patch_cases import BLACK_BOX, CASES

# keys that the cases of one setting share
SAME = ("patch", "placement", "places", "corner", "seed", "n", "data", "data_id")


def settings_of(results: Sequence[Result]) -> list[list[Result]]:
    """Results in groups with the same squares on the same images."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(tuple(result.description.get(key) for key in SAME), []).append(result)
    return list(groups.values())


def worst_records(model: str, results: Sequence[Result]) -> list[Record]:
    """Records `worst`: an image counts as correct only if it survives all measured cases of a setting."""
    records = []
    for group in settings_of(results):
        if len(group) > 1:
            survived = np.logical_and.reduce([right(result) for result in group])
            low, high = interval(int(survived.sum()), len(survived))
            told = {key: x for key, x in group[0].description.items() if key in SAME}
            measured = {result.description["case"] for result in group}
            names = [name for name in CASES if name in measured]
            merged = Result(
                {"suite": "patches", "case": "worst", **told, "cases": ",".join(names)}, group[0].columns, [],
                sum(result.seconds for result in group),
            )  # fmt: skip
            records.append(of_result(model, merged, "top1", float(survived.mean()), low=low, high=high))
    return records


def check_patches(model: str, results: Sequence[Result]) -> list[Record]:
    """Records of all checks that these results of patch attacks allow."""
    found = [*_zero_gradients(results), *_black_box(results), *_growth(results)]
    return [check_record(model, "patches", **each) for each in found]


def _zero_gradients(results: Sequence[Result]) -> Iterator[Record]:
    """Fails if the gradient in the patch is zero or NaN at the first step of an attack."""
    for result in results:
        if result.description["case"] in ("pgd", "evade"):
            size = result.columns["gradient"]
            n, bad = int((size >= 0).sum()), int((size == 0).sum())
            sentence = f"{_name(result)}: {bad} of {n} attacked images have a gradient in the patch that is zero or NaN"
            yield dict(
                case="zero gradients", passed=bad == 0, sentence=sentence, n=n, patch=result.description["patch"]
            )


def _black_box(results: Sequence[Result]) -> Iterator[Record]:
    """Fails if patches made without gradients at the image succeed where attacks with gradients fail."""
    for group in settings_of(results):
        white = [result for result in group if result.description["case"] not in BLACK_BOX]
        if not white:
            continue
        survived = np.logical_and.reduce([right(result) for result in white])
        names = ", ".join(dict.fromkeys(result.description["case"] for result in white))
        for black in group:
            if black.description["case"] in BLACK_BOX:
                alone, n = int((survived & ~right(black)).sum()), len(survived)
                sentence = f"{_name(black)} breaks {alone} of {n} images that {names} do not"
                told = {"patch": black.description["patch"]}
                yield dict(case="black box", passed=alone <= TOLERANCE * n, sentence=sentence, n=n, **told)


def _growth(results: Sequence[Result]) -> Iterator[Record]:
    """Fails if an attack with more steps leaves more answers correct."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        if result.description["case"] in ("pgd", "evade"):
            pinned = {key: x for key, x in result.description.items() if key != "steps"}
            groups.setdefault(tuple(sorted(pinned.items(), key=str)), []).append(result)
    for group in groups.values():
        if len(group) < 2:
            continue
        group.sort(key=lambda result: result.description["steps"])
        values = [right(result).mean() for result in group]
        worst = max(later - earlier for earlier, later in pairwise(values))
        steps = ", ".join(str(result.description["steps"]) for result in group)
        shown = " → ".join(f"{100 * value:.1f}" for value in values)
        yield dict(
            case="as the steps grow", passed=bool(worst <= TOLERANCE), n=len(right(group[0])),
            sentence=f"{_name(group[0])}: top-1 with {steps} steps: {shown}", patch=group[0].description["patch"],
        )  # fmt: skip


def _name(result: Result) -> str:
    side = result.description["patch"]
    return f"{result.description['case']} ({side}×{side})"


def in_words(each: Mapping[str, Any]) -> str:
    """The setting of a patch record as text."""
    side = each["patch"]
    place = {"random": "random place", "fixed": f"at {each.get('corner')}", "worst": f"worst of {each.get('places')}"}
    words = [f"{side}×{side}, {place[each['placement']]}"]
    words += [f"{each[key]} {_counted(each[key], key)}" for key in ("steps", "restarts", "draws") if key in each]
    if "start" in each:
        words.append("image and noise start" if each["start"] == "both" else f"{each['start']} start")
    if "weight" in each:
        words.append(f"weight {each['weight']:g}")
    if "source" in each:
        words.append(f"from {each['source']}")
    if "universal_data" in each:
        words.append(f"learnt on {each['universal_images']} images of {each['universal_data']}")
    if "cases" in each:
        words.append(each["cases"].replace(",", ", "))
    return ", ".join(words)


def _counted(number: int, plural: str) -> str:
    return plural[:-1] if number == 1 else plural
