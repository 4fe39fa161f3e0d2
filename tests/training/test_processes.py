"""One process or several: the same training."""

import json

import pytest

from principal_attention._files import read_jsonl
from runs import QUICK

# Two processes and one share no dropout masks, so the model draws nothing here; everything else does.
STEPS = 20
EQUAL = (*QUICK, "model.options.drop_path_rate=0", "training.batch_size=32", "schedule.epochs=3")


def curve(folder):
    lines = [line for line in read_jsonl(folder / "metrics.jsonl") if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 25))
    return [line["loss"] for line in lines[:STEPS]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return tmp_path_factory.mktemp("alone") / "run"


def test_two_processes_follow_the_curve_of_one(principal, quick, tmp_path):
    """The mean gradient of two halves is that of the whole up to the order of summation: 1e-5 over twenty steps."""
    quick(tmp_path / "one", *EQUAL)
    done = principal("train", "digits/rpc_symvit", *EQUAL, "--out", tmp_path / "two", processes=2, threads=1)
    assert done.returncode == 0, done.stderr
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert two == pytest.approx(one, abs=1e-5)
    assert len(set(one)) == STEPS  # a curve, not a constant
    counts = [json.loads(line)["n"] for line in (tmp_path / "two" / "records.jsonl").read_text().splitlines()]
    assert set(counts) == {256}  # of validation images, by two processes, each image once


def test_accumulated_parts_follow_the_same_curve(quick, tmp_path):
    quick(tmp_path / "one", *EQUAL)
    quick(tmp_path / "parts", *EQUAL, "training.accumulate=4")
    assert curve(tmp_path / "parts") == pytest.approx(curve(tmp_path / "one"), abs=1e-5)


def test_a_run_started_by_one_process_is_ended_by_two(principal, quick, tmp_path):
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    quick(whole, *EQUAL)
    quick(moved, *EQUAL, "schedule.epochs=2")
    words = ("train", "digits/rpc_symvit", *EQUAL, "--out", moved, "--resume")
    done = principal(*words, processes=2, threads=1)
    assert done.returncode == 0, done.stderr
    lines = [line["loss"] for line in read_jsonl(moved / "metrics.jsonl") if "loss" in line]
    assert len(lines) == 24


def test_an_error_is_one_sentence_of_the_first_process(principal, tmp_path):
    words = ("train", "digits/rpc_symvit", "training.batch_size=63", "--out", tmp_path)
    done = principal(*words, processes=2, threads=1)
    assert done.returncode != 0
    assert "training.batch_size is 63; expected a multiple of 2" in done.stderr
