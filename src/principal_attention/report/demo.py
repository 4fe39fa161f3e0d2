"""The demo's page."""

import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from .._files import write_text
from ..evaluation.compare import percent
from . import figures


def write_page(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    models: list[str],
    seeds: int,
    verdict: str,
    curves: dict[tuple[str, int], list[dict[str, Any]]],
    samples: dict[str, Any],
) -> Path:
    """One HTML file that needs nothing beside it; every text in it is escaped."""
    environment = Environment(loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": percent, "signed": lambda x: f"{100 * x:+.1f}"}
    titles = {row["case"]: row["title"] for row in rows}
    page = environment.get_template("demo.html").render(
        rows=rows, models=models, seeds=seeds, verdict=verdict, version=__version__,
        today=datetime.date.today().isoformat(),
        accuracies=figures.accuracies(rows, models), curves=figures.curves(curves, models),
        answers={name: figures.answers(found, titles) for name, found in samples.items()},
    )  # fmt: skip
    path = folder / "index.html"
    write_text(path, page)
    return path
