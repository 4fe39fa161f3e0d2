"""Claims of docs/results/key-recovery.md."""

import json

import pytest


@pytest.fixture(scope="module")
def recovery(benchmark):
    return benchmark("recovery")


def test_a_low_threshold_finds_the_errors_and_the_papers_leaves_them(recovery, tmp_path):
    recovery.run(tmp_path, seeds=1, share=0.05)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    errors = {r["model"]: r["value"] for r in records if r["metric"] == "key_error"}
    nothing = errors["plain attention"]
    assert errors["cleaned, λ = 4"] == pytest.approx(nothing)
    assert errors["cleaned, λ = 0.5"] < 0.2 * nothing
    assert errors["PCP"] < 0.2 * nothing
    assert (tmp_path / "recovery.png").read_bytes().startswith(b"\x89PNG")
