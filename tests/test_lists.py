"""`principal list`: one line per entry, in the width of the terminal."""

import pytest

from principal_attention.cli.app import _listings
from principal_attention.cli.lists import format_names

LINES = {
    "one": "The first of two things, with a line that is long enough to be wrapped.",
    "another/name": "The second.",
}


@pytest.mark.parametrize("what", ["recipes", "models", "suites", "attacks", "corruptions"])
def test_every_listed_thing_has_a_line(what):
    found = {name: line for listing in _listings()[what] for name, line in listing().items()}
    assert found
    for name, line in found.items():
        assert len(line.split()) > 1, f"{what} {name} has no line"
        assert "\n" not in line


@pytest.mark.parametrize("width", [8, 20, 40, 80])
def test_lines_fit_the_terminal_and_lose_no_word(width):
    text = format_names(LINES, width)
    words = text.split()
    assert words == [word for name, line in LINES.items() for word in (name, *line.split())]
    assert max(map(len, text.splitlines())) <= max(width, 4 + max(map(len, words)))


def test_without_a_terminal_each_name_has_one_line():
    lines = format_names(LINES, None).splitlines()
    assert [line.split()[0] for line in lines] == list(LINES)
    assert {line.index(LINES[line.split()[0]]) for line in lines} == {len("another/name") + 2}
