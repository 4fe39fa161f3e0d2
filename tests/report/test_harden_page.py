"""Page and table of `principal harden`, made from records only."""

import pytest

from principal_attention.evaluation.results import CHECKED, COMPARED
from principal_attention.plumbing.records import record
from principal_attention.report.harden import cost, summary, table, write_page

NAMES = ("untouched", "hardened")


def records():
    """Two cases: clean, within noise, and an attack, better by 40 points."""
    made = []
    attack = {"eps": 1 / 255, "norm": "linf", "protocol": "pixel", "gradients": "own", "steps": 20}
    for suite, case, values, p, pinned in (
        ("clean", "clean", (0.72, 0.70), 0.3, {}), ("attacks", "pgd", (0.04, 0.44), 1e-9, attack),
    ):  # fmt: skip
        told = dict(n=100, seed=0, task="images", data="<b>images</b>", measured="2026-11-18", **pinned)
        for name, value in zip(NAMES, values, strict=True):
            made.append(record(name, suite, case, "top1", value, low=0.0, high=1.0, seconds=1.0, **told))
        made.append(record(NAMES[1], suite, case, COMPARED, values[1] - values[0], low=-0.05, high=0.5, p=p,
                           against=NAMES[0], only_ours=1, only_theirs=2, **told))  # fmt: skip
    made.append(record(NAMES[1], "attacks", "zero gradients", CHECKED, 1.0, n=100, seed=0, task="images",
                       sentence="0 of 100 images have a gradient of zero"))  # fmt: skip
    return made + [record(name, "benchmark", "forward", "seconds", seconds, n=1, seed=0, task="images")
                   for name, seconds in zip(NAMES, (0.02, 0.03), strict=True)]  # fmt: skip


def test_cases_are_shown_before_and_after_with_their_paired_difference():
    rows = {row[0]: row[2:] for row in table(records())}
    assert rows["pgd"] == ["100", "4.0", "44.0", "+40.0 (-5.0 to +50.0)", "better"]
    assert rows["clean"] == ["100", "72.0", "70.0", "-2.0 (-5.0 to +50.0)", "within noise"]
    assert summary(records()) == "Better: pgd. No difference beyond noise: clean."
    assert cost(records()) == (0.02, 0.03)


def test_a_case_of_one_model_only_is_left_out():
    found = [each for each in records() if (each["model"], each["case"]) != ("untouched", "pgd")]
    assert [row[0] for row in table(found)[1:]] == ["clean"]


def test_the_page_escapes_what_it_is_given(tmp_path):
    text = write_page(tmp_path, "<script>alert(1)</script>", "linf", records()).read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "<b>images" not in text
    assert "1.50 times as long" in text
    assert "0 of 100 images have a gradient of zero" in text
    assert "measured 2026-11-18" in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_whole_and_asks_nobody_for_anything(look, tmp_path, width):
    tab = look(write_page(tmp_path, "model", "linf", records()), width)
    assert tab.locator("#results tbody tr").count() == 2
