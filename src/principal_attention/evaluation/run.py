"""`principal evaluate`: every case on every batch, resumable at a batch, shared among processes."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from accelerate import Accelerator
from rich.progress import Progress

from ..errors import InputError
from ..plumbing.files import write_jsonl
from ..plumbing.layout import RECORDS
from ..plumbing.processes import Place, raise_together, spare_workers
from .outcomes import Columns, Outcomes, Result, key_of, open_outcomes


class Subject(Protocol):
    """A model under test."""

    name: str

    def fingerprint(self) -> str: ...


class Batch(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def indices(self) -> list[int]:
        """Of the examples, in the data."""

    def first(self, count: int) -> Self: ...

    def to(self, device: torch.device) -> Self: ...


class Examples(Protocol):
    """What it is tested on: images, texts, the tokens of a text."""

    def fingerprint(self) -> str:
        """Other data of the same name have another."""

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class Case:
    """What can be measured of a model, a batch at a time."""

    suite: str
    name: str
    n: int  # images, texts or tokens
    measure: Callable[[Any, Any], Columns]  # of a subject and a batch
    pinned: Mapping[str, Any] = field(default_factory=dict)  # what makes it this case and no other
    cost: float = 1.0  # forward passes an example, for the time left

    @property
    def description(self) -> dict[str, Any]:
        return {"suite": self.suite, "case": self.name, "n": self.n, **self.pinned}


@dataclass(frozen=True)
class Group:
    """Cases on the same examples."""

    data: str  # how records call them
    examples: Examples
    cases: Sequence[Case]


@dataclass(frozen=True)
class Evaluation:
    records: list[dict[str, Any]]
    results: list[Result]


def evaluate(
    subject: Subject,
    groups: Sequence[Group],
    folder: Path,
    *,
    summarise: Callable[[list[Result]], list[dict[str, Any]]],
    batch_size: int = 50,
    accelerator: Accelerator,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure what is not yet measured in the folder, and summarise all that is there."""
    place = Place(accelerator.process_index, accelerator.num_processes)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"model": subject.name, "weights": subject.fingerprint(), "batch_size": batch_size}
    problem: Exception | None = None
    try:
        outcomes = open_outcomes(folder, settings, place.rank)
        _measure(subject, groups, outcomes, batch_size, place, accelerator.device, progress)
    except (InputError, OSError) as wrong:
        problem = wrong if isinstance(wrong, InputError) else InputError(str(wrong))
    raise_together(problem, accelerator)
    accelerator.wait_for_everyone()
    results = outcomes.results()
    records = summarise(results)
    if place.rank == 0:
        write_jsonl(folder / RECORDS, records)
    return Evaluation(records, results)


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
