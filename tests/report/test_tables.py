"""Tables on a narrow terminal."""

import io

import pytest
from rich.console import Console

from principal_attention.evaluation.results import COMPARED
from principal_attention.plumbing.records import record
from principal_attention.report.evaluation import comparison_tables, tables
from principal_attention.report.tables import for_terminal

TEXT = dict(n=217_645, seed=0, data="wikitext-103/validation", protocol="sliding, stride 16", seconds=125.0)
SWAPPED = dict(n=872, seed=0, data="sst2/validation", rate=0.015, low=0.81, high=0.86, seconds=3.0)

PAIR = dict(task="texts", against="another model", only_ours=41, only_theirs=37, p=0.73)


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
    return tables([each | {"task": "language"} for each in found])[0].rows


@pytest.mark.parametrize(
    "rows",
    [
        perplexities(),
        tables([record("m", "word_swap", "word_swap", "top1", 0.842, task="texts", **SWAPPED)])[0].rows,
        comparison_tables([record("m", "word_swap", "word_swap", COMPARED, 0.005, **SWAPPED, **PAIR)])[0].rows,
    ],
    ids=["perplexity", "accuracy", "comparison"],
)
def test_numbers_and_words_are_not_broken(rows, narrow):
    shown = narrow(rows)
    words = {word for row in rows for cell in row for word in cell.split()}
    for word in words:
        assert word in shown or len(word) > 10
    assert max(map(len, shown.splitlines())) <= 80
