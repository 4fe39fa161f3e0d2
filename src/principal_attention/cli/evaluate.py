"""`principal evaluate`: measure a model with suites; write records and print tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..adapt.named import ModelRef
from ..adapt.spec import Robustify
from ..errors import InputError
from ..plumbing.sections import Section, check_names, split_words
from ..tasks import Kind, kind_of
from ..tasks.checkpoint import model_at
from ..tasks.kind import DataChoice
from .options import Offers, pick, refuse_others, written


def sections(kind: Kind) -> Iterator[tuple[str, type[Section]]]:
    """Sections of options of `principal evaluate`, with the suite of each; "" for the kind itself."""
    yield "", kind.data_options
    for suite in kind.suites.values():
        yield suite.name, suite.options


@dataclass(frozen=True)
class Request:
    """Options of `principal evaluate` that do not depend on the kind of model."""

    model: str
    suite: str | None
    data: str | None
    split: str | None
    limit: int | None
    batch_size: int
    seed: int
    robustify: str | None
    checkpoint: str | None
    out: Path | None
    against: Path | None
    command: str = "evaluate"  # prefix of the default folder


def run_evaluate(asked: Request, given: Mapping[str, Any], offers: Offers) -> None:
    """Run `principal evaluate`. `given`: options of kinds and suites; `offers`: all such options, with their owners."""
    given_ref = ModelRef.of(asked.model, Robustify.parse(asked.robustify) if asked.robustify is not None else None)
    with model_at(given_ref, asked.checkpoint) as ref:
        _evaluate(ref, asked, written(given), offers)


def _evaluate(ref: ModelRef, asked: Request, own: Mapping[str, Any], offers: Offers) -> None:
    kind = kind_of(ref)
    suites = _suites(kind, asked.suite)
    if asked.against is not None and not any(kind.suites[name].comparable for name in suites):
        raise InputError(f"--against compares examples one by one, which --suite {','.join(suites)} does not allow")
    refuse_others(offers, own, kind, asked.model, suites)
    choice = DataChoice(asked.data, asked.split, pick(kind.data_options, own))
    options = {name: pick(kind.suites[name].options, own) for name in suites}
    _measure(ref, kind, choice, options, asked)


def _suites(kind: Kind, given: str | None) -> list[str]:
    names = kind.default_suites if given is None else [kind.aliases.get(name, name) for name in split_words(given)]
    return check_names(names, list(kind.suites), f"suite of {kind.title}")


def _measure(ref: ModelRef, kind: Kind, choice: DataChoice, options: Mapping[str, Any], asked: Request) -> None:
    import torch
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs
    from rich.console import Console

    from ..evaluation.outcomes import read_settings
    from ..evaluation.run import evaluate
    from ..evaluation.suite import Bench
    from ..plumbing.progress import make_progress
    from ..report.evaluation import show

    if asked.against is not None:
        read_settings(asked.against)
    patient = InitProcessGroupKwargs(timeout=timedelta(days=30))  # a process without work may wait long for another
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[patient])
    subject = kind.subject(ref, accelerator.device)
    folder = asked.out or Path("runs") / f"{asked.command}-{subject.name}"
    bench = Bench(
        subject, accelerator.device, lambda: kind.open_data(subject, ref, choice), choice.source, asked.limit,
        asked.batch_size, asked.seed, folder,
    )  # fmt: skip
    groups = [group for name, chosen in options.items() for group in kind.suites[name].groups(bench, chosen)]
    first = accelerator.is_main_process
    with make_progress() as bar:
        found = evaluate(
            subject, groups, folder, suites=kind.suites, facts={"task": kind.name}, accelerator=accelerator,
            batch_size=kind.chunk or asked.batch_size, against=asked.against, progress=bar if first else None,
        )  # fmt: skip
    if first:
        console = Console()
        show(console, found.records)
        for name, chosen in options.items():
            for path in kind.suites[name].write(subject, found.results, folder, chosen):
                console.print(f"{name}: {path}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"every example and records: {folder}", highlight=False, markup=False, soft_wrap=True)
