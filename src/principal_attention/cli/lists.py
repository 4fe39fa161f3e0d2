"""Names with a line about each, aligned in columns."""

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping

import typer

GAP = 2


def print_names(lines: Mapping[str, str]) -> None:
    """Print names and lines in two columns, wrapped to a terminal; without a terminal, one line for each name."""
    typer.echo(format_names(lines, _width()))


def format_names(lines: Mapping[str, str], width: int | None) -> str:
    start = max(map(len, lines), default=0) + GAP
    if width is not None and width < 2 * start:  # a narrow terminal: the line goes below its name
        return "\n".join(f"{name}\n{_indented(line, width)}" for name, line in lines.items())
    found = []
    for name, line in lines.items():
        wrapped = [line] if width is None else textwrap.wrap(line, width - start, break_long_words=False)
        found.append(f"{name:{start}}" + f"\n{'':{start}}".join(wrapped))
    return "\n".join(found)


def _indented(line: str, width: int) -> str:
    return textwrap.indent(textwrap.fill(line, max(1, width - 4), break_long_words=False), "    ")


def _width() -> int | None:
    """Columns of the terminal; None where the output is a file or a pipe and COLUMNS is not set."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns
