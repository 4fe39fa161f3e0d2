"""Commands killed with kill -9 and restarted have the same results as uninterrupted ones; see `kills.py`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kills
from principal_attention.plumbing.files import read_jsonl, write_jsonl


def killed(out, *words):
    """Run the script, which must find no differences."""
    command = [sys.executable, "-W", "ignore", str(Path(kills.__file__)), "--out", str(out), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no differences" in done.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="the script asks Linux for signals and descriptors of processes")
def test_a_few_kills_change_nothing(tmp_path):
    killed(tmp_path, "--kills", 6, "--fresh", 0, "--jobs", "train-texts,evaluate-texts,analyze-texts")
    assert sum(len(each["kills"]) for each in read_jsonl(tmp_path / "rounds.jsonl")) == 6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="as above")
def test_two_hundred_kills_of_everything_change_nothing(tmp_path):
    """In two parts, to test that the script resumes."""
    killed(tmp_path, "--kills", 20)
    rounds = read_jsonl(tmp_path / "rounds.jsonl")
    killed(tmp_path, "--kills", 200)
    found = read_jsonl(tmp_path / "rounds.jsonl")
    assert found[: len(rounds)] == rounds
    assert sum(len(each["kills"]) for each in found) == 200
    assert {each["job"] for each in found if each["kills"]} == set(kills.JOBS)


@pytest.fixture
def folders(tmp_path):
    """Two equal folders with the files of a training and an evaluation."""
    whole = tmp_path / "whole"
    for step in (8, 9):
        (whole / "checkpoints" / f"step-{step:08}").mkdir(parents=True)
        (whole / "checkpoints" / f"step-{step:08}" / "model.safetensors").write_bytes(bytes([step]))
    (whole / "model.safetensors").write_bytes(b"weights")
    write_jsonl(whole / "metrics.jsonl", [{"step": step, "loss": 0.5, "waiting_share": 0.1} for step in range(3)])
    write_jsonl(whole / "outcomes-0.jsonl", [{"case": "a", "batch": n, "seconds": 1, "rank": [n]} for n in (0, 1)])
    shutil.copytree(whole, tmp_path / "killed")
    return whole, tmp_path / "killed"


def test_times_and_the_order_of_batches_are_no_differences(folders):
    whole, again = folders
    write_jsonl(
        again / "metrics.jsonl", [line | {"waiting_share": 0.9} for line in read_jsonl(whole / "metrics.jsonl")]
    )
    write_jsonl(again / "outcomes-0.jsonl", read_jsonl(whole / "outcomes-0.jsonl")[::-1])
    (again / "checkpoints" / "step-00000008").rename(again / "checkpoints" / "step-00000007")
    (again / ".lock").write_text("process 1\n")
    assert kills.differences(whole, again) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda again: (again / "model.safetensors").write_bytes(b"weight."), "model.safetensors differs"),
        (lambda again: (again / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda again: (again / ".metrics.jsonl.partial").touch(), ".metrics.jsonl.partial is left over"),
        (lambda again: (again / ".files.partial").mkdir(), ".files.partial is left over"),
        (lambda again: (again / "checkpoints" / "step-00000007").mkdir(), "3 checkpoints are left"),
        (
            lambda again: write_jsonl(again / "metrics.jsonl", read_jsonl(again / "metrics.jsonl")[:2]),
            "metrics.jsonl differs in line 3 (of 3 and 2)",
        ),
    ],
)
def test_whatever_else_is_not_the_same_is_told(folders, change, told):
    whole, again = folders
    change(again)
    assert kills.differences(whole, again) == [told]
