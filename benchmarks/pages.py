"""Pages of results that several measurements share, a piece each."""

from collections.abc import Sequence
from pathlib import Path

from principal_attention.plumbing.files import write_text


def keep(page: Path, lines: Sequence[str], *, title: str) -> None:
    """Put a piece, which begins with its own `## heading`, in the place of the one of that heading; all else stays."""
    before = page.read_text(encoding="utf-8") if page.exists() else f"# {title}"
    head, *pieces = before.strip().split("\n\n## ")
    kept = {piece.partition("\n")[0]: piece for piece in pieces}
    new = "\n".join(lines).strip().removeprefix("## ")
    kept[new.partition("\n")[0]] = new
    write_text(page, "\n\n## ".join([head, *kept.values()]) + "\n")
