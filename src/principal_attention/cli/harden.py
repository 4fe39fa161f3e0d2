"""`principal harden`: fine-tune a model against a threat, measure it before and after, and write a page."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapt.named import ModelRef
from ..adapt.spec import Robustify
from ..errors import InputError
from ..plumbing.files import read_jsonl, write_jsonl
from ..plumbing.layout import RECIPE, RECORDS
from ..plumbing.records import record
from ..plumbing.sections import check_options
from ..recipes import Recipe
from ..tasks import Kind, kind_of, read_recipe
from ..tasks import train as run_training
from ..tasks.kind import DataChoice, Threat

if TYPE_CHECKING:
    from ..evaluation.outcomes import Result
    from ..evaluation.suite import Record

BEFORE, AFTER = "untouched", "hardened"  # folders of the two evaluations
ROUNDS = 12  # timed forward passes of each model


@dataclass(frozen=True)
class Request:
    """Arguments of `principal harden`."""

    model: str
    data: str
    against: str
    split: str | None
    holdout: int | None
    measure: int | None
    labels: bool
    epochs: int | None
    seed: int
    robustify: str | None
    out: Path | None
    threat: Mapping[str, Any]  # options of the threat that were given
    overrides: Sequence[str]


def run_harden(asked: Request) -> None:
    ref = ModelRef.of(asked.model)
    ref.check_finished()
    DataChoice(asked.data)  # raises for an empty name
    kind = kind_of(ref)
    threat = _threat(kind, asked)
    recipe = _recipe(ref, kind, threat, asked)
    folder = asked.out or Path("runs") / f"harden-{ref.name}-{asked.against}"
    if not _is_done(folder, recipe):
        run_training(recipe, folder, resume=(folder / RECIPE).exists())
    records = _measure(ref, ModelRef.of(folder), kind, threat, recipe, asked.measure)
    training = [each for each in read_jsonl(folder / RECORDS) if each["model"] == recipe.name]
    write_jsonl(folder / RECORDS, training + records)
    _report(folder, ref, asked.against, records)


def _threat(kind: Kind, asked: Request) -> Threat:
    threats = kind.threats()
    if not threats:
        raise InputError(f"{kind.title} cannot be hardened; expected an image classifier")
    if asked.against not in threats:
        raise InputError(f"--against is {asked.against!r}; expected one of {', '.join(threats)}")
    threat = threats[asked.against]
    for name in asked.threat:
        if name not in threat.keys:
            fitting = [other for other, each in threats.items() if name in each.keys]
            raise InputError(f"--{name} was given with --against {asked.against}; it is for {', '.join(fitting)}")
    return threat


def _recipe(ref: ModelRef, kind: Kind, threat: Threat, asked: Request) -> Recipe:
    """The threat's built-in recipe with the options of the command merged over it."""
    sections: dict[str, Any] = {
        "init_from": ref.anchored(), "seed": asked.seed,
        "data": kind.hardening_data(asked.data, asked.split, asked.holdout),
    }  # fmt: skip
    if asked.robustify is not None:
        sections["robustify"] = Robustify.parse(asked.robustify).model_dump(exclude_unset=True)
    if asked.epochs is not None:
        sections["schedule"] = {"epochs": asked.epochs}
    for name, value in asked.threat.items():
        _set(sections, threat.keys[name], value)
    if asked.labels and "loss" in threat.keys and "loss" not in asked.threat:
        _set(sections, threat.keys["loss"], "pgd")
    if asked.labels or sections.get("adversarial", {}).get("loss") in ("pgd", "trades"):
        sections |= {"teacher": None, "features": None}
    return read_recipe(threat.recipe, asked.overrides, sections)


def _set(sections: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        sections = sections.setdefault(name, {})
    sections[last] = value


def _is_done(folder: Path, recipe: Recipe) -> bool:
    """Whether the folder holds the finished run of this recipe."""
    return all((folder / name).is_file() for name in (RECIPE, RECORDS)) and read_recipe(folder) == recipe.anchored()


def _measure(
    before: ModelRef, after: ModelRef, kind: Kind, threat: Threat, recipe: Recipe, limit: int | None
) -> list["Record"]:
    """Records of both models on the held-out examples, their paired differences, and the time of an example."""
    import torch
    from accelerate import Accelerator

    from ..evaluation.run import evaluate
    from ..evaluation.suite import Bench
    from ..plumbing.progress import make_progress

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    folders = [after.folder / name for name in (BEFORE, AFTER)]
    chosen = threat.suites(recipe)
    subjects, found = [], []
    results: dict[str, Sequence[Result]] = {}
    for ref, name, folder in zip((before, after), (BEFORE, AFTER), folders, strict=True):
        subject = kind.subject(ref, accelerator.device)
        subject.name = name
        opened = kind.open_data(subject, after, DataChoice())
        bench = Bench(subject, accelerator.device, partial(tuple, opened), None, limit, seed=recipe.seed)
        groups = [
            group
            for suite, options in chosen.items()
            for group in kind.suites[suite].groups(
                replace(bench, limit=limit or threat.limits.get(suite)),
                check_options(kind.suites[suite].options, dict(options)),
            )
        ]
        against = folders[0] if name == AFTER else None
        with make_progress() as bar:
            done = evaluate(
                subject, groups, folder, suites=kind.suites, facts={"task": kind.name}, accelerator=accelerator,
                batch_size=threat.batch_size, against=against, progress=bar,
            )  # fmt: skip
        subjects.append(subject)
        found += done.records
        results[name] = done.results
    if threat.summary is not None:
        found += threat.summary(recipe, results)
    return found + _times(subjects, kind.name)


def _times(subjects: Sequence[Any], task: str) -> list["Record"]:
    """Seconds of a forward pass of one example of each model, the fastest of several rounds taken in turn."""
    import torch

    best = [float("inf")] * len(subjects)
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for number, subject in enumerate(subjects):
                example = subject.example()
                start = time.perf_counter()
                subject.network(example)
                best[number] = min(best[number], time.perf_counter() - start)
    return [
        record(subject.name, "benchmark", "forward", "seconds", seconds, n=1, seed=0, task=task, rounds=ROUNDS)
        for subject, seconds in zip(subjects, best, strict=True)
    ]


def _report(folder: Path, ref: ModelRef, against: str, records: Sequence["Record"]) -> None:
    from rich.console import Console

    from ..report.harden import summary, table, write_page
    from ..report.tables import for_terminal

    console = Console()
    console.print(for_terminal(table(records), f"{ref.name} hardened against {against}: held-out examples, in %"))
    console.print(summary(records), highlight=False)
    page = write_page(folder, ref.name, against, records)
    console.print(f"model: {folder}\npage: {page}", highlight=False, markup=False, soft_wrap=True)
