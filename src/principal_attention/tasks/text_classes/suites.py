"""Suites of text classifiers: accuracy on the original texts, and with words swapped."""

from collections.abc import Iterator
from typing import Any

from ...evaluation.suite import Bench, Group, Record
from ..answering import AnswerSuite
from ..text_options import Swapping


class CleanTexts(AnswerSuite):
    name, help = "clean", "Accuracy on the original texts."

    def groups(self, bench: Bench, options: Any) -> Iterator[Group]:
        from .examples import clean_case

        texts, name = bench.opened
        yield Group(name, texts, [clean_case(bench.count(len(texts)))])


class SwappedTexts(AnswerSuite):
    name, help = "word_swap", "Accuracy on texts with some words replaced by AAA."
    options = Swapping

    def groups(self, bench: Bench, options: Swapping) -> Iterator[Group]:
        from .examples import swap_case

        texts, name = bench.opened
        yield Group(name, texts, [swap_case(bench.count(len(texts)), options.swap_rate, bench.seed)])

    def setting(self, record: Record) -> str:
        return f"{record['data']}, {100 * record['rate']:g}% swapped, seed {record['seed']}"


SUITES = (CleanTexts(), SwappedTexts())
