"""Does an attack fail because the model is robust, or because its gradients lead nowhere? Checks that always run."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..vision.attacks import ATTACKS
from .images import Batch
from .outcomes import Columns, Result, answers
from .results import budget
from .run import Case
from .subject import Subject

TOLERANCE = 0.02  # share of the images that chance may account for


@dataclass(frozen=True)
class Check:
    passed: bool
    sentence: str


def gradient_case(n: int) -> Case:
    """The norm of the loss's gradient at every image, and on the first batch what AutoAttack itself warns of."""
    return Case("attacks", "gradients", n, _gradients, {"protocol": "pixel"}, cost=3)


def _gradients(subject: Subject, batch: Batch) -> Columns:
    with torch.enable_grad():
        images = batch.images.clone().requires_grad_()
        logits = subject.on_pixels(images)
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, batch.labels, reduction="sum"), images)
    sizes = gradient.flatten(1).norm(dim=1)
    columns = answers(logits.detach(), batch.labels) | {"size": [float(f"{x:.6g}") for x in sizes.tolist()]}
    return columns | ({"flags": _flags(subject, batch)} if batch.number == 0 else {})


def _flags(subject: Subject, batch: Batch) -> list[str]:
    from pyautoattack import checks

    few = batch.first(16)
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


def check_masking(results: Sequence[Result]) -> list[Check]:
    """Everything the results at hand allow to check."""
    found = [r for r in results if r.description["suite"] == "attacks"]
    return [*_zero_gradients(found), *_own_flags(found), *_black_box(found), *_growth(found, "eps"),
            *_growth(found, "steps")]  # fmt: skip


def _zero_gradients(results: Sequence[Result]) -> Iterator[Check]:
    for result in results:
        if result.description["case"] == "gradients":
            bad = int((~(result.columns["size"] > 0)).sum())
            yield Check(bad == 0, f"{bad} of {len(result.right)} images have a gradient of zero, or none")


def _own_flags(results: Sequence[Result]) -> Iterator[Check]:
    flags = [flag for result in results for flag in result.flags]
    if any(result.description["case"] == "gradients" for result in results):
        yield Check(not flags, "AutoAttack's own checks: " + ("; ".join(flags) or "nothing"))


def _black_box(results: Sequence[Result]) -> Iterator[Check]:
    """An attack without gradients must not find what those with gradients do not."""
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
            alone = int((survived & ~black.right).sum())
            n = len(black.right)
            names = ", ".join(sorted({w.description["case"] for w in together}))
            yield Check(
                alone <= TOLERANCE * n,
                f"ε = {budget(eps)}: {name}, without gradients, breaks {alone} of {n} images that {names} do not",
            )


def _at(result: Result, indices: Any) -> Any:
    return result.right[np.searchsorted(result.columns["index"], indices)]


def _growth(results: Sequence[Result], of: str) -> Iterator[Check]:
    """More budget or more steps must not leave more images right. (Under `authors` they may: what moves away from a
    wrong answer can arrive at the right one.)"""
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
        values = [result.right.mean() for result in group]
        worst = max(later - earlier for earlier, later in pairwise(values))
        told = group[0].description
        shown = " → ".join(f"{100 * value:.1f}" for value in values)
        growing = "ε grows" if of == "eps" else "the steps grow"
        yield Check(
            worst <= TOLERANCE,
            f"{told['case']} ({told['protocol']}, {told['gradients']} gradients): top-1 as {growing}: {shown}",
        )
