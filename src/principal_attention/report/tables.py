"""Tables for the terminal and for Markdown."""

import re
import shutil

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..evaluation.suite import Rows

_NUMBER = re.compile(r"[-+–\d](?!.*[a-z]{3}).*|")  # such as 4.2%, 3e-4, 1.0 ± 0.1, 0.8 to 0.9
NARROWEST = 8  # minimum width of a text column, in characters


def for_terminal(rows: Rows, title: str, width: int | None = None) -> Table:
    """Table that fits the width of the terminal: text is wrapped between words or after - / _, numbers are not."""
    room = width or shutil.get_terminal_size().columns
    table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False, title_justify="left")
    table.title = Text("\n" + _wrapped(title, room))
    numeric = [all(_NUMBER.fullmatch(row[column]) for row in rows[1:]) for column in range(len(rows[0]))]
    heads = [head.replace(" ", "\n") if numeric[column] else head for column, head in enumerate(rows[0])]
    widths = [
        max([1, *map(len, head.split("\n")), *(len(row[column]) for row in rows[1:])])
        for column, head in enumerate(heads)
    ]
    _shrink(widths, numeric, room - (len(widths) - 1))
    for column, head in enumerate(heads):
        shown = head if numeric[column] else _wrapped(head, widths[column])
        table.add_column(shown, justify="right" if numeric[column] else "left", no_wrap=True, width=widths[column])
    for row in rows[1:]:  # as Text, so that brackets are not markup
        table.add_row(*(Text(_wrapped(cell, widths[column])) for column, cell in enumerate(row)))
    return table


def _shrink(widths: list[int], numeric: list[bool], room: int) -> None:
    """Reduce the widest text column until all columns fit or every text column has its minimum width."""
    while sum(widths) > room:
        texts = [column for column in range(len(widths)) if not numeric[column] and widths[column] > NARROWEST]
        if not texts:
            return
        widths[max(texts, key=lambda column: widths[column])] -= 1


def _wrapped(text: str, width: int) -> str:
    """Text wrapped to lines of at most `width` characters."""
    lines, line = [], ""
    for piece in re.findall(r"\s+|[^\s/_-]*[/_-]|[^\s/_-]+", text):
        if line and len((line + piece).rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece if line or piece.strip() else ""
        while len(line.rstrip()) > width:  # a piece longer than the column
            lines.append(line[:width])
            line = line[width:]
    return "\n".join([*lines, line.rstrip()] if line.strip() or not lines else lines)


def for_markdown(rows: Rows) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
