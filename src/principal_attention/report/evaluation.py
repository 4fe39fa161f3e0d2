"""Tables of evaluations for the terminal and for Markdown, made from records only."""

from collections.abc import Iterable, Sequence

from rich.console import Console

from ..evaluation.compare import verdict
from ..evaluation.results import CHECKED, COMPARED
from ..evaluation.suite import Record, Rows, Suite, Table
from ..tasks.registry import kind_named
from .tables import for_terminal


def suites_of(records: Sequence[Record]) -> list[tuple[Suite, list[Record]]]:
    """Suites of the records, in the order of their kinds, each with its records."""
    found = []
    for task in dict.fromkeys(each["task"] for each in records):
        for name, suite in kind_named(task).suites.items():
            own = [each for each in records if (each["task"], each["suite"]) == (task, name)]
            if own:
                found.append((suite, own))
    return found


def tables(records: Sequence[Record]) -> list[Table]:
    """Tables of the measurements; suites with the same title and columns share a table."""
    found: dict[tuple[str, tuple[str, ...]], Rows] = {}
    for suite, own in suites_of(records):
        for title, rows in suite.tables([each for each in own if each["metric"] not in (CHECKED, COMPARED)]):
            if rows:
                found.setdefault((title, tuple(rows[0])), rows[:1]).extend(rows[1:])
    return [Table(title, rows) for (title, _), rows in found.items()]


def check_lines(records: Iterable[Record]) -> list[str]:
    """Lines with the results of the suites' checks of their own measurements."""
    made = [each for each in records if each["metric"] == CHECKED]
    return [f"{'✓' if each['value'] else '!'} {each['sentence']}" for each in made]


def comparison_tables(records: Sequence[Record]) -> list[Table]:
    """Tables of paired comparisons, one per other model, with one row per case."""
    made = []
    for other in dict.fromkeys(each["against"] for each in records if each["metric"] == COMPARED):
        own = [each for each in records if each["metric"] == COMPARED and each["against"] == other]
        answers, scores = [r for r in own if "only_ours" in r], [r for r in own if "only_ours" not in r]
        if answers:
            title = f"difference to {other} on the same examples, in percentage points; p is that of McNemar's test"
            made.append(Table(title, answer_rows(answers)))
        if scores:
            title = f"difference to {other} in the mean score of the same examples; p is that of a sign-flip test"
            made.append(Table(title, score_rows(scores)))
    return made


def answer_rows(records: Sequence[Record]) -> Rows:
    """Rows of comparisons of accuracy."""
    rows = [["case", "setting", "n", "points", "95%", "only ours", "only theirs", "p", "verdict"]]
    for suite, own in suites_of(records):
        for each in own:
            rows.append([
                each["case"], suite.setting(each), str(each["n"]), f"{100 * each['value']:+.1f}",
                f"{100 * each['low']:+.1f} to {100 * each['high']:+.1f}", str(each["only_ours"]),
                str(each["only_theirs"]), f"{each['p']:.3f}", verdict(each["value"], each["p"]),
            ])  # fmt: skip
    return rows


def score_rows(records: Sequence[Record]) -> Rows:
    """Rows of comparisons of mean scores."""
    rows = [["case", "setting", "n", "difference", "95%", "p", "verdict"]]
    for suite, own in suites_of(records):
        for each in own:
            rows.append([
                each["case"], suite.setting(each), str(each["n"]), f"{each['value']:+.3g}",
                f"{each['low']:+.3g} to {each['high']:+.3g}", f"{each['p']:.3f}", verdict(each["value"], each["p"]),
            ])  # fmt: skip
    return rows


def show(console: Console, records: Sequence[Record]) -> None:
    """Print all tables and checks of one evaluation."""
    name = records[0]["model"] if records else ""
    for title, rows in tables(records):
        console.print(for_terminal(rows, f"{name}: {title}" if title else name))
    for suite, own in suites_of(records):
        if lines := check_lines(own):
            console.print(suite.check_title, highlight=False)
            for line in lines:
                console.print(line, highlight=False, soft_wrap=True, markup=False)
    for title, rows in comparison_tables(records):
        console.print(for_terminal(rows, title))
