"""Tables of words, for the terminal and for Markdown."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

Rows = list[list[str]]  # the first holds the names of the columns


def for_terminal(rows: Rows, title: str) -> Table:
    table = Table(title=Text(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for number, head in enumerate(rows[0]):
        numeric = all(row[number][:1] in "+-0123456789–" for row in rows[1:])
        whole = number == 0 or (numeric and " " not in head)
        table.add_column(head, justify="right" if numeric else "left", overflow="fold", no_wrap=whole)
    for row in rows[1:]:
        table.add_row(*map(Text, row))  # as they are: a name in brackets is no markup
    return table


def for_markdown(rows: Rows) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
