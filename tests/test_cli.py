"""`principal` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PRINCIPAL = Path(sys.executable).with_name("principal")


def principal(*words, **options):
    return subprocess.run([str(PRINCIPAL), *words], capture_output=True, text=True, check=False, **options)


def test_help_has_an_example():
    assert "demo" in principal("--help").stdout
    assert "Example: principal demo" in principal("demo", "--help").stdout
    assert principal("--version").stdout.startswith("principal-attention ")


def test_demo_writes_its_numbers_and_its_picture(tmp_path):
    done = principal("demo", "--out", str(tmp_path / "run"), "--seeds", "2", env={"COLUMNS": "140", "PATH": ""})
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    for key in ("model", "suite", "case", "metric", "value", "n", "seed"):
        assert all(key in record for record in records)
    assert {r["seed"] for r in records} == {0, 1}
    errors = {r["model"]: r["value"] for r in records if r["metric"] == "key_error" and r["seed"] == 0}
    # What the page claims: λ = 4 leaves the errors in, PCP and `cleaned` at λ = 0.5 take them out.
    nothing = errors["plain attention"]
    assert errors["cleaned, λ = 4"] == pytest.approx(nothing)
    assert errors["cleaned, λ = 0.5"] < 0.2 * nothing
    assert errors["PCP"] < 0.2 * nothing
    picture = (tmp_path / "run" / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    for name in errors:
        assert name.split(",")[0] in done.stdout
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.parametrize("share", ["0", "1"])
def test_demo_at_its_edges(tmp_path, share):
    done = principal("demo", "--out", str(tmp_path), "--seeds", "1", "--errors", share)
    assert done.returncode == 0, done.stderr
    assert "NaN" not in (tmp_path / "records.jsonl").read_text()


def test_bad_input_is_one_sentence(tmp_path):
    done = principal("demo", "--out", str(tmp_path), "--errors", "2")
    assert done.returncode == 1
    assert done.stderr == "principal demo: the share of errors is 2.0; expected a number in [0, 1]\n"
    (tmp_path / "file").write_text("")
    done = principal("demo", "--out", str(tmp_path / "file"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert principal("dem").returncode == 2
