"""Result pages with several sections, each written by one measurement."""

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

from principal_attention.plumbing.files import read_jsonl, write_text
from principal_attention.plumbing.records import MEASURED


def measured(files: Iterable[Path]) -> str:
    """Date, or first and last date, on which the numbers in these JSON Lines files were measured.

    Records carry the date of their measurement; for files whose lines have none, it is the date of the file.
    """
    dates = set()
    for file in files:
        written = date.fromtimestamp(file.stat().st_mtime).isoformat()
        dates |= {each.get(MEASURED) or written for each in read_jsonl(file)}
    first, last = min(dates), max(dates)
    return first if first == last else f"{first} to {last}"


def keep(page: Path, lines: Sequence[str], *, title: str) -> None:
    """Add a section to a page, or replace the section with the same heading. The first line is its `## heading`."""
    before = page.read_text(encoding="utf-8") if page.exists() else f"# {title}"
    head, *pieces = before.strip().split("\n\n## ")
    kept = {piece.partition("\n")[0]: piece for piece in pieces}
    new = "\n".join(lines).strip().removeprefix("## ")
    kept[new.partition("\n")[0]] = new
    write_text(page, "\n\n## ".join([head, *kept.values()]) + "\n")
