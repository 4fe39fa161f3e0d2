"""Page of the demo."""

from pathlib import Path
from typing import Any

from ..plumbing.layout import PAGE
from . import figures, pages


def write_page(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    records: list[dict[str, Any]],
    models: list[str],
    seeds: int,
    verdict: str,
    curves: dict[tuple[str, int], list[dict[str, Any]]],
    samples: dict[str, Any],
) -> Path:
    """Write the page of the demo to a folder, and return its path."""
    titles = {row["case"]: row["title"] for row in rows}
    return pages.write_page(
        folder / PAGE, "demo.html", records=records, rows=rows, models=models, seeds=seeds, verdict=verdict,
        accuracies=figures.accuracies(rows, models), curves=figures.curves(curves, models),
        answers={name: figures.answers(found, titles) for name, found in samples.items()},
    )  # fmt: skip
