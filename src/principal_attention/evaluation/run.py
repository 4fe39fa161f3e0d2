"""Run an evaluation: every case on every batch; it can be resumed after any batch and shared by processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.progress import Progress

from ..errors import InputError
from ..plumbing.files import read_jsonl, write_jsonl
from ..plumbing.layout import RECORDS
from ..plumbing.outputs import output_folder
from ..plumbing.processes import Place, held_by_first, raise_together, spare_workers
from ..plumbing.records import MEASURED, record
from .outcomes import Outcomes, Result, key_of, open_outcomes, read_settings
from .results import COMPARED
from .suite import Case, Group, Record, Subject, Suite, merged


@dataclass(frozen=True)
class Evaluation:
    records: list[Record]
    results: list[Result]


def evaluate(
    subject: Subject,
    groups: Sequence[Group],
    folder: Path,
    *,
    suites: Mapping[str, Suite],
    facts: Mapping[str, Any],
    batch_size: int = 50,
    accelerator: Accelerator,
    against: Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure all batches that are not yet in the folder, and write the records of the whole folder.

    Args:
        subject: model to evaluate.
        groups: cases to measure, with their examples.
        folder: output folder.
        suites: all suites of this kind of model, by name.
        facts: entries added to every record.
        batch_size: number of examples per batch. Default: 50.
        against: folder of another evaluation, to compare with example by example.
    """
    if against is not None and against.resolve() == folder.resolve():
        raise InputError(f"--against is {against}, the folder of this evaluation; name another evaluation's folder")
    place = Place(accelerator.process_index, accelerator.num_processes)
    settings = {"model": subject.name, "weights": subject.fingerprint(), "batch_size": batch_size}
    with held_by_first(accelerator, output_folder(folder, "an evaluation")):
        problem: Exception | None = None
        try:
            outcomes = open_outcomes(folder, settings, place.rank)
            _measure(subject, merged(groups), outcomes, batch_size, place, accelerator.device, progress)
        except (InputError, OSError) as wrong:
            problem = wrong if isinstance(wrong, InputError) else InputError(str(wrong))
        raise_together(problem, accelerator)
        accelerator.wait_for_everyone()
        return _summarised(subject, outcomes.results(), folder, suites, facts, against, first=place.rank == 0)


def _summarised(
    subject: Subject, results: list[Result], folder: Path, suites: Mapping[str, Suite], facts: Mapping[str, Any],
    against: Path | None, *, first: bool,
) -> Evaluation:  # fmt: skip
    """Records of all results in the folder; the first process writes them."""
    pinned = {**facts, **({"robustify": subject.robustify} if subject.robustify else {})}
    records: list[Record] = []
    for name, suite in suites.items():
        if own := [result for result in results if result.description["suite"] == name]:
            dated = {MEASURED: max(result.measured for result in own)}
            made = (*suite.summarise(subject, results), *suite.checks(subject, results))
            records += [each | pinned | dated for each in made]
    if first:
        records += [each | pinned for each in _compared(subject, suites, results, folder, against)]
        write_jsonl(folder / RECORDS, records)
    return Evaluation(records, results)


def _compared(
    subject: Subject, suites: Mapping[str, Suite], results: Sequence[Result], folder: Path, against: Path | None
) -> list[Record]:
    """Comparisons with `against`, and the folder's earlier comparisons with other evaluations."""
    before = [each for each in read_jsonl(folder / RECORDS) if each.get("metric") == COMPARED]
    if against is None:
        return before
    other = read_settings(against)
    found = compare(subject.name, suites, results, other["model"], Outcomes(against).results())
    if not found:
        raise InputError(
            f"{against} and this evaluation have no comparable case in common; measure the same cases in both, with "
            "the same --data, --split, --limit and --seed"
        )
    return [each for each in before if each["against"] != other["model"]] + found


def compare(
    model: str, suites: Mapping[str, Suite], ours: Sequence[Result], other: str, theirs: Sequence[Result]
) -> list[Record]:
    """Records of comparisons: one per comparable case that was measured for both models on the same examples."""
    known = {key_of(result.description): result for result in theirs}
    made = []
    for result in ours:
        suite, match = suites.get(result.description["suite"]), known.get(key_of(result.description))
        if suite is None or match is None or (found := suite.compare(result, match)) is None:
            continue
        told = {"seed": 0, MEASURED: max(result.measured, match.measured), **result.description}
        counts = {"only_ours": found.only_ours, "only_theirs": found.only_theirs}
        made.append(record(
            model, told.pop("suite"), told.pop("case"), COMPARED, found.difference, against=other, low=found.low,
            high=found.high, p=found.p, **told, **{key: x for key, x in counts.items() if x is not None},
        ))  # fmt: skip
    return made


def _measure(
    subject: Subject,
    groups: Sequence[Group],
    outcomes: Outcomes,
    size: int,
    place: Place,
    device: torch.device,
    progress: Progress | None,
) -> None:
    done = outcomes.done()
    work: list[tuple[Group, dict[int, list[tuple[str, Case, int]]]]] = []
    for group in groups:
        batches: dict[int, list[tuple[str, Case, int]]] = {}
        pinned = {"data": group.data, "data_id": group.examples.fingerprint()}
        for turn, case in enumerate(group.cases):
            key = key_of(case.description | pinned)
            for number in range(-(-case.n // size)):
                mine = (number + turn) % place.world == place.rank
                if mine and (key, number) not in done:
                    batches.setdefault(number, []).append((key, case, min(size, case.n - number * size)))
        work.append((group, dict(sorted(batches.items()))))
    total = sum(case.cost * count for _, batches in work for units in batches.values() for _, case, count in units)
    bar = progress.add_task("evaluating", total=total, note="") if progress else None
    for group, batches in work:
        for batch in group.examples.batches(size, list(batches), spare_workers(place.world) if len(batches) > 1 else 0):
            for key, case, count in batches[batch.number]:
                if progress is not None and bar is not None:
                    progress.update(bar, note=_note(case))
                start = time.monotonic()
                columns = case.measure(subject, batch.first(count).to(device))
                columns["index"] = batch.indices[:count]
                outcomes.append(key, batch.number, columns, time.monotonic() - start)
                if progress is not None and bar is not None:
                    progress.advance(bar, case.cost * count)


def _note(case: Case) -> str:
    told = case.pinned
    return " ".join([case.name, *(f"{key} {told[key]:.3g}" for key in ("severity", "eps") if key in told)])
