"""Checks for masked gradients: attacks that fail because gradients are useless, not because the model is robust."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ...evaluation.outcomes import Columns, Result
from ...evaluation.results import check_record
from ...evaluation.suite import Case, Record
from ...vision.attacks import ATTACKS
from ..classes import answers, right
from .examples import ImageBatch
from .protocols import budget
from .subject import ImageSubject

TOLERANCE = 0.02  # share of the images by which a check may fail by chance
FLAGGED = 16  # images for AutoAttack's own checks


def gradient_case(n: int) -> Case:
    """Norm of the loss gradient at each image, and AutoAttack's own warnings on the first batch."""
    return Case("attacks", "gradients", n, _gradients, {"protocol": "pixel"}, cost=3)


def _gradients(subject: ImageSubject, batch: ImageBatch) -> Columns:
    with torch.enable_grad():
        images = batch.images.clone().requires_grad_()
        logits = subject.on_pixels(images)
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, batch.labels, reduction="sum"), images)
    sizes = gradient.flatten(1).norm(dim=1)
    columns = answers(logits.detach(), batch.labels) | {"size": [float(f"{x:.6g}") for x in sizes.tolist()]}
    return columns | ({"flags": _flags(subject, batch)} if batch.number == 0 else {})


def _flags(subject: ImageSubject, batch: ImageBatch) -> list[str]:
    from pyautoattack import checks

    few = batch.first(FLAGGED)
    model = subject.on_pixels
    with _collected() as said:
        log = logging.getLogger("auto-attack")
        checks.check_randomized(model, few.images, few.labels, logger=log)
        checks.check_range_output(model, few.images, logger=log)
        with torch.no_grad():
            checks.check_dynamic(model, few.images, logger=log)
    return [" ".join(line.replace("See flags_doc.md for details.", "").split()) for line in said]


@contextmanager
def _collected() -> Iterator[list[str]]:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("auto-attack")
    log.addHandler(handler)
    before, log.propagate = log.propagate, False
    try:
        yield said
    finally:
        log.removeHandler(handler)
        log.propagate = before


def check_masking(model: str, results: Sequence[Result]) -> list[Record]:
    """Records of all checks that these results of attacks allow."""
    found = [*_zero_gradients(results), *_own_flags(results), *_black_box(results), *_growth(results, "eps"),
             *_growth(results, "steps")]  # fmt: skip
    return [check_record(model, "attacks", **each) for each in found]


def _zero_gradients(results: Sequence[Result]) -> Iterator[Record]:
    for result in results:
        if result.description["case"] == "gradients":
            n, bad = len(result.columns["size"]), int((~(result.columns["size"] > 0)).sum())
            sentence = f"{bad} of {n} images have a gradient that is zero or NaN"
            yield dict(case="zero gradients", passed=bad == 0, sentence=sentence, n=n)


def _own_flags(results: Sequence[Result]) -> Iterator[Record]:
    flags = [flag for result in results for flag in result.flags]
    looked = [result for result in results if result.description["case"] == "gradients"]
    if looked:
        sentence = "AutoAttack's own checks: " + ("; ".join(flags) or "no warnings")
        yield dict(case="AutoAttack's flags", passed=not flags, sentence=sentence, n=min(FLAGGED, _n(looked[0])))


def _black_box(results: Sequence[Result]) -> Iterator[Record]:
    """Fails if an attack without gradients succeeds where attacks with gradients fail."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        told = result.description
        if told.get("norm") == "linf" and told["protocol"] == "pixel" and told["gradients"] != "transfer":
            groups.setdefault((told["eps"], told.get("data"), told.get("data_id")), []).append(result)
    for (eps, *_), at in sorted(groups.items(), key=str):
        white = [r for r in at if ATTACKS[r.description["case"]].gradients]
        for black in at:
            name = black.description["case"]
            together = [w for w in white if set(black.columns["index"]) <= set(w.columns["index"])]
            if ATTACKS[name].gradients or not together:
                continue
            survived = np.logical_and.reduce([_at(w, black.columns["index"]) for w in together])
            alone, n = int((survived & ~right(black)).sum()), _n(black)
            names = ", ".join(sorted({w.description["case"] for w in together}))
            sentence = f"ε = {budget(eps)}: {name}, without gradients, breaks {alone} of {n} images that {names} do not"
            yield dict(case="black box", passed=alone <= TOLERANCE * n, sentence=sentence, n=n, eps=eps)


def _at(result: Result, indices: Any) -> Any:
    return right(result)[np.searchsorted(result.columns["index"], indices)]


def _n(result: Result) -> int:
    return len(result.columns["index"])


def _growth(results: Sequence[Result], of: str) -> Iterator[Record]:
    """Fails if PGD with a larger budget or more steps leaves more answers correct.

    The protocol `authors` is left out: moving away from a wrong prediction can lead to the correct one.
    """
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        told = result.description
        if told["case"] == "pgd" and told["protocol"] == "pixel":
            pinned = {key: x for key, x in told.items() if key != of}
            groups.setdefault(tuple(sorted(pinned.items(), key=str)), []).append(result)
    for group in groups.values():
        if len(group) < 2:
            continue
        group.sort(key=lambda result: result.description[of])
        values = [right(result).mean() for result in group]
        worst = max(later - earlier for earlier, later in pairwise(values))
        told = group[0].description
        shown = " → ".join(f"{100 * value:.1f}" for value in values)
        growing = "ε grows" if of == "eps" else "the steps grow"
        sentence = f"{told['case']} ({told['protocol']}, {told['gradients']} gradients): top-1 as {growing}: {shown}"
        yield dict(case=f"as {growing}", passed=bool(worst <= TOLERANCE), sentence=sentence, n=_n(group[0]))
