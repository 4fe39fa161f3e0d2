"""What is measured of a text classifier: its answers to texts as they are, and with words swapped."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...evaluation.suite import Bench, Group, Record, Suite, Table
from ..text_options import Swapping

if TYPE_CHECKING:
    from ...evaluation.outcomes import Result


class Clean(Suite):
    name, help = "clean", "Accuracy on the texts as they are."

    def groups(self, bench: Bench, options: Any) -> Iterator[Group]:
        from .examples import clean_case

        texts, name = bench.opened
        yield Group(name, texts, [clean_case(bench.count(len(texts)))])

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..classes import top1

        return [top1(subject.name, result) for result in self.own(results)]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ..classes import accuracy_rows

        return [Table("", accuracy_rows(records, self.setting))]

    def score(self, result: "Result") -> Any:
        from ..classes import right

        return right(result)


class WordSwap(Clean):
    name, help = "word_swap", "Accuracy on texts with some words replaced by AAA."
    options = Swapping

    def groups(self, bench: Bench, options: Swapping) -> Iterator[Group]:
        from .examples import swap_case

        texts, name = bench.opened
        yield Group(name, texts, [swap_case(bench.count(len(texts)), options.swap_rate, bench.seed)])

    def setting(self, record: Record) -> str:
        return f"{record['data']}, {100 * record['rate']:g}% swapped, seed {record['seed']}"


SUITES = (Clean(), WordSwap())
