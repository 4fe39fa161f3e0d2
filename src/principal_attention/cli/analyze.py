"""`principal analyze`: measure the attention heads of a model; print tables, write figures and a page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapt.named import ModelRef
from ..adapt.spec import Robustify
from ..errors import InputError
from ..plumbing.sections import Section, split_words
from ..tasks import Kind, kind_of
from ..tasks.checkpoint import model_at
from ..tasks.kind import DataChoice
from .options import Offers, pick, refuse_others, written

if TYPE_CHECKING:
    from ..analysis.inputs import Inputs


def sections(kind: Kind) -> Iterator[tuple[str, type[Section]]]:
    """Sections of options of `principal analyze`."""
    yield "", kind.analysis_options


def run_analyze(
    model: str, out: Path | None, *, data: str | None, split: str | None, count: int, prefixes: str, batch_size: int,
    seed: int, robustify: str | None, checkpoint: str | None, given: Mapping[str, Any], offers: Offers,
) -> None:  # fmt: skip
    """Run `principal analyze`. `given`: options of kinds of models; `offers`: all such options, with their owners."""
    lengths = _lengths(prefixes)
    given_ref = ModelRef.of(model, Robustify.parse(robustify) if robustify is not None else None)
    own = written(given)
    with model_at(given_ref, checkpoint) as ref:
        kind = kind_of(ref)
        refuse_others(offers, own, kind, model)
        inputs = open_inputs(kind, ref, DataChoice(data, split, pick(kind.analysis_options, own)), count)

    from rich.console import Console

    from ..analysis.run import AnalysisOptions, analyze
    from ..analysis.verdicts import judge
    from ..plumbing.layout import RECORDS
    from ..plumbing.progress import make_progress
    from ..report.kernel_pca import RANGE, metric_rows, verdict_lines, write_report
    from ..report.tables import for_terminal

    folder = out or Path("runs") / f"analyze-{inputs.name}"
    options = AnalysisOptions(batch_size, seed, lengths)
    with make_progress() as bar:
        records = analyze(inputs, folder, options, facts={"task": kind.name}, progress=bar)
    verdicts = judge(records)
    page = write_report(folder, records, verdicts, unit=inputs.unit)
    console = Console()
    title = f"{inputs.name}, {len(inputs)} {inputs.unit} of {inputs.data}: medians over heads"
    shown = [[cell for number, cell in enumerate(row) if number != RANGE] for row in metric_rows(records)]
    console.print(for_terminal(shown, title))
    console.print("\n".join(verdict_lines(verdicts)), highlight=False, markup=False)
    console.print(f"page: {page}\nevery head: {folder / RECORDS}", highlight=False, markup=False, soft_wrap=True)


def open_inputs(kind: Kind, ref: ModelRef, choice: DataChoice, count: int) -> "Inputs":
    """Open `count` examples of the model for analysis."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = kind.inputs(ref, choice, count=count, device=device)
    if inputs is None:
        raise InputError(f"{ref.given} is one of {kind.title}, whose heads cannot be analysed")
    return inputs


def _lengths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(word) for word in split_words(text)}))
    except ValueError as wrong:
        raise InputError(f"--prefixes is {text}; expected numbers of tokens, such as 64,128") from wrong
    if any(length < 2 for length in found):
        raise InputError(f"--prefixes is {text}; expected at least 2 tokens each")
    return found
