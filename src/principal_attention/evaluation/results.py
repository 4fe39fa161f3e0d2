"""Make records from the results of a case."""

from typing import Any

from ..plumbing.records import record
from .outcomes import Result
from .suite import Record

COMPARED = "difference"  # metric of a paired comparison
CHECKED = "check"  # metric of a suite's check of its own measurements


def of_result(model: str, result: Result, metric: str, value: float, **rest: Any) -> Record:
    """Record of one metric of a result."""
    told = {"seed": 0, **result.description}
    seconds = round(result.seconds, 1)
    return record(model, told.pop("suite"), told.pop("case"), metric, value, **told, **rest, seconds=seconds)


def check_record(model: str, suite: str, case: str, passed: bool, sentence: str, *, n: int, **rest: Any) -> Record:
    """Record of a check: its value is 1 if the check passed, else 0; `sentence` is the message to print."""
    return record(model, suite, case, CHECKED, float(passed), n=n, seed=0, sentence=sentence, **rest)
