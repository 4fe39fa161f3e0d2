"""From what was found of every example in a case to records of it."""

from typing import Any

from ..plumbing.records import record
from .outcomes import Result
from .suite import Record

COMPARED = "difference"  # the metric of a paired comparison
CHECKED = "check"  # the metric of what a suite says of its own measurements


def of_result(model: str, result: Result, metric: str, value: float, **rest: Any) -> Record:
    """A record of what was found in a case."""
    told = {"seed": 0, **result.description}
    seconds = round(result.seconds, 1)
    return record(model, told.pop("suite"), told.pop("case"), metric, value, **told, **rest, seconds=seconds)


def check_record(model: str, suite: str, case: str, passed: bool, sentence: str, *, n: int, **rest: Any) -> Record:
    """A record of a check: its value is 1 where it passed, and the sentence says what was found."""
    return record(model, suite, case, CHECKED, float(passed), n=n, seed=0, sentence=sentence, **rest)
