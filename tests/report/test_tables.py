"""Tables on a narrow terminal."""

import io

import pytest
from rich.console import Console

from principal_attention.evaluation.compare import Paired
from principal_attention.plumbing.records import record
from principal_attention.report.evaluation import accuracy_rows, comparison_rows, perplexity_rows
from principal_attention.report.tables import for_terminal

TEXT = dict(n=217_645, seed=0, data="wikitext-103/validation", protocol="sliding, stride 16", seconds=125.0)
SWAPPED = dict(n=872, seed=0, data="sst2/validation", rate=0.015, low=0.81, high=0.86, seconds=3.0)

PAIR = Paired(872, 41, 37, -0.01, 0.02, 0.73)


@pytest.fixture
def narrow():
    """narrow(rows): their table in 80 columns."""

    def show(rows):
        file = io.StringIO()
        Console(file=file, width=80).print(for_terminal(rows, "a model"))
        return file.getvalue()

    return show


def perplexities():
    found = []
    for suite, swap in (("perplexity", {}), ("word_swap", {"swap": "inputs", "rate": 0.015})):
        metrics = {"perplexity": 18_259.58, "word_perplexity": 20_259.58, "unknown_share": 0.093}
        found += [record("m", suite, suite, name, value, **TEXT, **swap) for name, value in metrics.items()]
    return perplexity_rows(found)


@pytest.mark.parametrize(
    "rows",
    [
        perplexities(),
        accuracy_rows([record("m", "word_swap", "word_swap", "top1", 0.842, **SWAPPED)]),
        comparison_rows([({"suite": "word_swap", "case": "word_swap", **SWAPPED}, PAIR)]),
    ],
    ids=["perplexity", "accuracy", "comparison"],
)
def test_numbers_and_words_are_not_broken(rows, narrow):
    shown = narrow(rows)
    words = {word for row in rows for cell in row for word in cell.split()}
    for word in words:
        assert word in shown or len(word) > 10
    assert max(map(len, shown.splitlines())) <= 80
