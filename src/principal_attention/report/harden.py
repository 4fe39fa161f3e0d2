"""Table and page of `principal harden`, from records alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..evaluation.compare import verdict
from ..evaluation.results import CHECKED, COMPARED
from ..evaluation.suite import Record, Rows
from ..plumbing.layout import PAGE
from . import figures, pages
from .evaluation import check_lines, suites_of

SHARES = ("top1", "mean_top1", "certified")  # metrics that are shown, as shares of the examples
TITLES = {"top1": "", "mean_top1": "mean", "certified": "certified"}
# Keys in which records of the same case differ: what was found, not what was measured.
FOUND = {
    "model", "metric", "value", "low", "high", "seconds", "measured", "against", "p", "only_ours", "only_theirs",
    "robustify", "task",
}  # fmt: skip


class Row(NamedTuple):
    """One case before and after."""

    case: str
    setting: str
    n: int
    before: float
    after: float
    difference: Record | None  # the paired comparison


def rows(records: Sequence[Record]) -> list[Row]:
    """Cases that both models were measured on, in the order of their suites."""
    made = []
    names = list(dict.fromkeys(each["model"] for each in records))
    for suite, own in suites_of([each for each in records if each["suite"] != "benchmark"]):
        compared = {_key(each): each for each in own if each["metric"] == COMPARED}
        for metric in SHARES:
            found = [{_key(each): each for each in own if each["metric"] == metric and each["model"] == name}
                     for name in names]  # fmt: skip
            for key, after in found[-1].items():
                before = found[0].get(key)
                if before is not None:
                    setting = ", ".join(filter(None, [TITLES[metric], suite.setting({"data": "", **after})]))
                    matched = compared.get(key) if metric in (suite.compared, "mean_top1") else None
                    made.append(Row(after["case"], setting, after["n"], before["value"], after["value"], matched))
    return made


def _key(each: Mapping[str, Any]) -> str:
    return repr(sorted((key, x) for key, x in each.items() if key not in FOUND))


def table(records: Sequence[Record]) -> Rows:
    made = [["case", "setting", "n", "before", "after", "points (95%)", "verdict"]]
    for row in rows(records):
        found = row.difference
        points = f"{100 * (row.after - row.before):+.1f}"
        between = f" ({100 * found['low']:+.1f} to {100 * found['high']:+.1f})" if found else ""
        said = verdict(found["value"], found["p"]) if found else ""
        shown = [f"{100 * x:.1f}" for x in (row.before, row.after)]
        made.append([row.case, row.setting, str(row.n), *shown, points + between, said])
    return made


def summary(records: Sequence[Record]) -> str:
    """One sentence on the cases that improved, got worse, or did not change beyond noise."""
    told: dict[str, list[str]] = {"better": [], "worse": [], "within noise": []}
    for row in rows(records):
        if row.difference is not None:
            told[verdict(row.difference["value"], row.difference["p"])].append(row.case)
    titles = {"better": "Better", "worse": "Worse", "within noise": "No difference beyond noise"}
    return " ".join(f"{titles[key]}: {', '.join(cases)}." for key, cases in told.items() if cases)


def cost(records: Sequence[Record]) -> tuple[float, float]:
    """Seconds of a forward pass of one example, before and after."""
    before, after = (each["value"] for each in records if each["suite"] == "benchmark")
    return before, after


def write_page(folder: Path, model: str, against: str, records: Sequence[Record]) -> Path:
    found = rows(records)
    heads, *lines = table(records)
    checks = check_lines(
        each for each in records if each["metric"] == CHECKED and each["model"] == records[-1]["model"]
    )
    bars = [(f"{row.case}\n{row.setting}", row.before, row.after) for row in found]
    return pages.write_page(
        folder / PAGE, "harden.html", records=records, model=model, against=against, folder=str(folder), heads=heads,
        lines=lines, verdict=summary(records), checks=checks, cost=cost(records), bars=figures.before_and_after(bars),
    )  # fmt: skip
