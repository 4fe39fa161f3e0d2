"""The demo's page."""

import datetime
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from .._files import write_text
from . import figures


def write_page(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    models: list[str],
    seeds: int,
    curves: dict[tuple[str, int], list[dict[str, Any]]],
    samples: dict[str, Any],
) -> Path:
    """One HTML file that needs nothing beside it; every text in it is escaped."""
    environment = Environment(loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": _percent, "signed": lambda x: f"{100 * x:+.1f}"}
    titles = {row["case"]: row["title"] for row in rows}
    page = environment.get_template("demo.html").render(
        rows=rows, models=models, seeds=seeds, version=__version__, today=datetime.date.today().isoformat(),
        accuracies=figures.accuracies(rows, models), curves=figures.curves(curves, models),
        answers={name: figures.answers(found, titles) for name, found in samples.items()},
        beyond=[row["title"] for row in rows if row["difference"].beyond_noise],
    )  # fmt: skip
    path = folder / "index.html"
    write_text(path, page)
    return path


def _percent(values: list[float]) -> str:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{100 * mean:.1f}"
    deviation = math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - 1))
    return f"{100 * mean:.1f} ± {100 * deviation:.1f}"
