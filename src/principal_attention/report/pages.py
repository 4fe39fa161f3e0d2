"""Pages: self-contained HTML files, with all text escaped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..evaluation.compare import percent
from ..plumbing.files import write_text
from ..plumbing.records import MEASURED
from ..version import __version__


def write_page(path: Path, template: str, *, records: Sequence[Mapping[str, Any]], **values: Any) -> Path:
    """Write a page from a template and its `values`; it shows the dates of `records`."""
    environment = Environment(loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": percent, "signed": lambda x: f"{100 * x:+.1f}"}
    dates = sorted({each[MEASURED] for each in records if each.get(MEASURED)})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    write_text(path, environment.get_template(template).render(version=__version__, measured=when, **values))
    return path
