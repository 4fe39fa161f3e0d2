"""Tables of words, for the terminal and for Markdown."""

import re

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ..evaluation.suite import Rows

_NUMBER = re.compile(r"[-+–\d](?!.*[a-z]{3}).*|")  # and what goes with it: 4.2%, 3e-4, 1.0 ± 0.1, 0.8 to 0.9
LONGEST = 10  # letters of a word that is not broken, however narrow the terminal


def for_terminal(rows: Rows, title: str) -> Table:
    """Numbers stay whole, and so do words that are not long."""
    table = Table(title=Text(f"\n{title}"), box=SIMPLE_HEAD, padding=0, show_edge=False, title_justify="left")
    for number, head in enumerate(rows[0]):
        numeric = all(_NUMBER.fullmatch(row[number]) for row in rows[1:])
        words = [word for row in rows for word in row[number].split()]
        table.add_column(
            head.replace(" ", "\n") if numeric else head, justify="right" if numeric else "left", overflow="fold",
            no_wrap=number == 0 or numeric, min_width=min(LONGEST, max(map(len, words), default=0)),
        )  # fmt: skip
    for row in rows[1:]:
        table.add_row(*map(Text, row))  # as they are: a name in brackets is no markup
    return table


def for_markdown(rows: Rows) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
