"""Print names with descriptions, aligned in two columns."""

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping

import typer

GAP = 2  # spaces between the columns


def print_names(lines: Mapping[str, str]) -> None:
    """Print names and descriptions in two columns, wrapped to the terminal; without a terminal, one line per name."""
    typer.echo(format_names(lines, _width()))


def format_names(lines: Mapping[str, str], width: int | None) -> str:
    """Names and descriptions as text. `width`: columns of the terminal; None: lines are not wrapped."""
    start = max(map(len, lines), default=0) + GAP
    if width is not None and width < 2 * start:  # a narrow terminal: each description is below its name
        return "\n".join(f"{name}\n{_indented(line, width)}" for name, line in lines.items())
    found = []
    for name, line in lines.items():
        wrapped = [line] if width is None else textwrap.wrap(line, width - start, break_long_words=False)
        found.append(f"{name:{start}}" + f"\n{'':{start}}".join(wrapped))
    return "\n".join(found)


def _indented(line: str, width: int) -> str:
    return textwrap.indent(textwrap.fill(line, max(1, width - 4), break_long_words=False), "    ")


def _width() -> int | None:
    """Columns of the terminal; None if the output is a file or a pipe and COLUMNS is not set."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns
