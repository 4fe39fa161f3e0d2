"""Suite of the original images."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....evaluation.suite import Bench, Group, Record
from ...answering import AnswerSuite

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result


class CleanImages(AnswerSuite):
    name, help = "clean", "Accuracy on the original images."

    def groups(self, bench: Bench, options: Any) -> Iterator[Group]:
        from ..cases import clean_case

        images, name = bench.opened
        yield Group(name, images, [clean_case(bench.count(len(images)))])

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..summary import accuracy_records

        return [each for result in self.own(results) for each in accuracy_records(subject.name, result)]
