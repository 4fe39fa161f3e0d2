"""Base class of the suites that measure accuracy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..evaluation.suite import Record, Suite, Table

if TYPE_CHECKING:
    from ..evaluation.outcomes import Result


class AnswerSuite(Suite):
    """Top-1 accuracy of each case with its interval; models are compared by their correct answers."""

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from .classes import top1

        return [top1(subject.name, result) for result in self.own(results)]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from .classes import accuracy_rows

        return [Table("", accuracy_rows(records, self.setting))]

    def score(self, result: "Result") -> Any:
        from .classes import right

        return right(result)
