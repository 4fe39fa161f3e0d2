"""`principal evaluate`: options become cases, cases become tables."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from rich.console import Console

from ..errors import InputError
from ..evaluation.compare import case_by_case
from ..evaluation.identity import check_finished
from ..evaluation.outcomes import Outcomes, Result, read_settings
from ..evaluation.run import evaluate
from ..language.kind import reads_text
from ..plumbing.progress import make_progress
from ..report.evaluation import comparison_rows
from ..report.tables import for_terminal
from .options import IMAGES, TEXTS, parse
from .plan import Plan

LISTS = ("suite", "corruptions", "severities", "attacks", "eps", "eps_l2", "eps_l1", "gradients")  # with commas


def run_evaluate(
    model: str, out: Path | None, against: Path | None, batch_size: int, given: Mapping[str, str | None], **options: Any
) -> None:
    """`given` are the names of the options that a person wrote, and which models each is for, where not for all."""
    check_finished(model)
    for name in LISTS:
        options[name] = parse(options[name])
    if against is not None:
        read_settings(against)
    patient = InitProcessGroupKwargs(timeout=timedelta(days=30))  # one process may have long work when another has none
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[patient])
    plan = _plan(model, accelerator.device, batch_size, given, **options)
    folder = out or Path("runs") / f"evaluate-{plan.subject.name}"
    first = accelerator.is_main_process
    with make_progress() as bar:
        found = evaluate(
            plan.subject, plan.groups, folder, summarise=plan.summarise, batch_size=plan.batch_size,
            accelerator=accelerator, progress=bar if first else None,
        )  # fmt: skip
    if first:
        console = Console()
        plan.show(console, found, folder)
        if against is not None:
            show_comparison(console, found.results, against)
        console.print(f"every example and records: {folder}", highlight=False, markup=False, soft_wrap=True)


def _plan(model: str, device: torch.device, batch_size: int, given: Mapping[str, str | None], **options: Any) -> Plan:
    """Each kind brings libraries that the other does not need."""
    texts = reads_text(model)
    for name, panel in given.items():
        if panel == (IMAGES if texts else TEXTS):
            kinds = ("images", "reads texts") if texts else ("text", "looks at images")
            raise InputError(f"--{name.replace('_', '-')} is for models of {kinds[0]}, and {model} {kinds[1]}")
    if texts:
        from .evaluate_texts import plan_texts

        return plan_texts(model, device, batch_size, given, **options)
    from .evaluate_images import plan_images

    return plan_images(model, device, batch_size, **options)


def show_comparison(console: Console, ours: Sequence[Result], folder: Path) -> None:
    other = read_settings(folder)["model"]
    found = case_by_case(ours, Outcomes(folder).results())
    if not found:
        raise InputError(
            f"{folder} holds no case that was measured here as well, on the same examples in the same way; measure the "
            "same cases in both, with the same --data, --split, --limit and --seed"
        )
    rows = comparison_rows(found)
    console.print(for_terminal(rows, f"difference to {other} on the same examples, in points; p is McNemar's"))
