"""`principal analyze`: a model's heads are measured and judged; a table, figures and a page say how."""

from pathlib import Path

import torch
from rich.console import Console

from ..analysis.inputs import Inputs
from ..analysis.run import Options, analyze
from ..analysis.verdicts import judge
from ..errors import InputError
from ..evaluation.identity import check_finished
from ..language.kind import reads_text
from ..plumbing.progress import make_progress
from ..report.kernel_pca import RANGE, metric_rows, verdict_lines, write_report
from ..report.tables import for_terminal
from .options import parse


def run_analyze(
    model: str, out: Path | None, *, data: str | None, split: str | None, column: str | None, count: int,
    pack: int | None, prefixes: str, batch_size: int, seed: int,
) -> None:  # fmt: skip
    options = Options(batch_size, seed, _lengths(prefixes))
    inputs = open_inputs(model, data, split, count, column=column, pack=pack)
    folder = out or Path("runs") / f"analyze-{inputs.name}"
    with make_progress() as bar:
        records = analyze(inputs, folder, options, progress=bar)
    verdicts = judge(records)
    page = write_report(folder, records, verdicts, unit=inputs.unit)
    console = Console()
    title = f"{inputs.name}, {len(inputs)} {inputs.unit} of {inputs.data}: medians over heads"
    shown = [[cell for number, cell in enumerate(row) if number != RANGE] for row in metric_rows(records)]
    console.print(for_terminal(shown, title))
    console.print("\n".join(verdict_lines(verdicts)), highlight=False, markup=False)
    console.print(
        f"page: {page}\nevery head: {folder / 'records.jsonl'}", highlight=False, markup=False, soft_wrap=True
    )


def open_inputs(
    model: str, data: str | None, split: str | None, count: int, *, column: str | None = None, pack: int | None = None
) -> Inputs:
    check_finished(model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if reads_text(model):
        from ..analysis.texts import TextInputs
        from .evaluate_texts import open_texts

        found, name = open_texts(model, labelled=False, data=data, split=split, column=column)
        return TextInputs(model, found.texts, name, count=count, pack=pack, device=device)
    if pack is not None or column is not None:
        raise InputError(f"--pack and --column are for texts, and {model} looks at images")
    from ..analysis.images import ImageInputs
    from ..evaluation.subject import Subject
    from .evaluate_images import open_images

    subject = Subject(model, device)
    images, name = open_images(subject, model, data, split)
    return ImageInputs(subject, images, name, count)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(word) for word in parse(text)}))
    except ValueError as wrong:
        raise InputError(f"--prefixes is {text}; expected numbers of tokens, as 64,128") from wrong
    if any(length < 2 for length in found):
        raise InputError(f"--prefixes is {text}; expected at least 2 tokens each")
    return found
