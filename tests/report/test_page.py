"""The demo's page: what is on it, and how it looks in a browser."""

import pytest

from principal_attention.evaluation.compare import paired
from principal_attention.report.demo import write_page

MODELS = ["SymViT", "RPC-SymViT", "hardened"]


def page(folder, **changes):
    values = {"SymViT": [0.9, 0.91, 0.92], "RPC-SymViT": [0.8, 0.9, 0.95], "hardened": [0.95, 0.96, 0.98]}
    rows = [
        {"case": case, "title": title, "model": name, "values": found,
         "difference": None if name == "SymViT" else paired(found, values["SymViT"])}
        for case, title in (("validation", "clean"), ("fgsm", "FGSM ε 0.1")) for name, found in values.items()
    ]  # fmt: skip
    image = [[i / 7] * 8 for i in range(8)]
    sample = {
        "labels": [3, 4], "images": {c: [image] * 2 for c in ("validation", "fgsm")},
        "predicted": {"validation": [3, 4], "fgsm": [3, 9]},
    }  # fmt: skip
    lines = [{"step": s, "epoch": s, "validation_top1": 0.3 * s} for s in (1, 2, 3)]
    given = dict(
        records=[{"measured": "2026-11-18"}], models=MODELS, seeds=3, verdict="Nothing is beyond noise.",
        curves={(name, seed): lines for name in MODELS for seed in range(3)}, samples=dict.fromkeys(MODELS, sample),
    )  # fmt: skip
    return write_page(folder, rows, **given | changes)


def test_numbers_are_on_the_page_with_their_deviation(tmp_path):
    text = page(tmp_path).read_text(encoding="utf-8")
    assert "91.0 ± 1.0" in text
    assert "88.3 ± 7.6" in text
    assert "-2.7" in text  # difference of RPC-SymViT, which is within noise
    assert text.count("within noise") == 3  # twice in the table, once where it is defined
    assert text.count("better") == 2
    assert "Nothing is beyond noise." in text
    assert "measured 2026-11-18" in text


def test_text_is_escaped(tmp_path):
    text = page(tmp_path, verdict="<script>alert(1)</script>").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_whole_and_asks_nobody_for_anything(look, tmp_path, width):
    tab = look(page(tmp_path), width)
    assert tab.locator("h1").inner_text() == "Hardening a vision transformer of handwritten digits"
    assert tab.locator("#results tbody tr").count() == 6
    assert tab.locator("#results tbody tr").first.locator("td").all_inner_texts()[2] == "91.0 ± 1.0"
