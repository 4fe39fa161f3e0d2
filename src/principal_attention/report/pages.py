"""Pages: one HTML file that needs nothing beside it; every text in it is escaped."""

import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..evaluation.compare import percent
from ..plumbing.files import write_text
from ..version import __version__


def write_page(path: Path, template: str, **values: Any) -> Path:
    environment = Environment(loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": percent, "signed": lambda x: f"{100 * x:+.1f}"}
    today = datetime.date.today().isoformat()
    write_text(path, environment.get_template(template).render(version=__version__, today=today, **values))
    return path
