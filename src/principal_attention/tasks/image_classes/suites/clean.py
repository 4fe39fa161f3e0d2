"""Images as they are."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....evaluation.suite import Bench, Group, Record, Suite, Table

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result


class Clean(Suite):
    name, help = "clean", "Accuracy on the images as they are."

    def groups(self, bench: Bench, options: Any) -> Iterator[Group]:
        from ..cases import clean_case

        images, name = bench.opened
        yield Group(name, images, [clean_case(bench.count(len(images)))])

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..summary import accuracies

        return [each for result in self.own(results) for each in accuracies(subject.name, result)]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ...classes import accuracy_rows

        return [Table("", accuracy_rows(records, self.setting))]

    def score(self, result: "Result") -> Any:
        from ...classes import right

        return right(result)
