"""From what was found of every example in a case to records of it, and from records to tables of them."""

from collections.abc import Sequence
from typing import Any

from scipy import stats

from ..plumbing.records import record
from .outcomes import Result

SAME = ("n", "data", "data_id", "seed", "source")  # what corruptions of one table have in common


def interval(right: int, n: int) -> tuple[float, float]:
    """Wilson's, 95%."""
    found = stats.binomtest(right, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def of_result(model: str, result: Result, metric: str, value: float, **rest: Any) -> dict[str, Any]:
    """A record of what was found in a case."""
    told = {"seed": 0, **result.description}
    seconds = round(result.seconds, 1)
    return record(model, told.pop("suite"), told.pop("case"), metric, value, **told, **rest, seconds=seconds)


def top1(model: str, result: Result) -> dict[str, Any]:
    """The share of right answers, with its interval."""
    right = result.right
    low, high = interval(int(right.sum()), len(right))
    return of_result(model, result, "top1", float(right.mean()), low=low, high=high)


def corruption_groups(records: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[tuple[str, int], float]]]:
    """Top-1 by kind and severity, for each set of images, seed and source; frost for each of its textures."""
    shared: dict[tuple[Any, ...], dict[tuple[str, int], float]] = {}
    frost: dict[tuple[Any, ...], dict[str | None, dict[tuple[str, int], float]]] = {}
    for each in records:
        if each["suite"] == "corruptions" and each["metric"] == "top1":
            group = tuple(each.get(key) for key in SAME)
            cases = shared.setdefault(group, {})
            if each["case"] == "frost":
                cases = frost.setdefault(group, {}).setdefault(each.get("textures"), {})
            cases[each["case"], each["severity"]] = each["value"]
    return [
        ({**dict(zip(SAME, group, strict=True)), "textures": textures}, cases | more)
        for group, cases in shared.items()
        for textures, more in frost.get(group, {None: {}}).items()
    ]


def budget(eps: float) -> str:
    """1/255 rather than 0.00392157, and 0.25/255; budgets in other norms are as they are."""
    quarters = eps * 255 * 4
    if abs(quarters - round(quarters)) > 1e-6 or not 1 <= round(quarters) < 256 or (quarters % 4 and quarters > 16):
        return f"{eps:g}"
    return f"{round(quarters) / 4:g}/255"
