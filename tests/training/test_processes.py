"""Training with one process and with several is the same."""

import json
import signal
import time

import pytest

from principal_attention.plumbing.files import read_jsonl
from runs import QUICK, class_folders

# Two processes and one share no dropout masks, so the model draws nothing here; everything else does.
STEPS = 20
EQUAL = (*QUICK, "model.options.drop_path_rate=0", "training.batch_size=32", "schedule.epochs=3")


def curve(folder):
    lines = [line for line in read_jsonl(folder / "metrics.jsonl") if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 25))
    return [line["loss"] for line in lines[:STEPS]]


def test_two_processes_follow_the_curve_of_one(principal, quick, tmp_path):
    """The mean gradient of two halves equals that of the batch up to summation order: 1e-5 over twenty steps."""
    quick(tmp_path / "one", *EQUAL)
    done = principal("train", "digits/rpc_symvit", *EQUAL, "--out", tmp_path / "two", processes=2, threads=1)
    assert done.returncode == 0, done.stderr
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert two == pytest.approx(one, abs=1e-5)
    assert len(set(one)) == STEPS  # a curve, not a constant
    counts = [json.loads(line)["n"] for line in (tmp_path / "two" / "records.jsonl").read_text().splitlines()]
    assert set(counts) == {256}  # each validation image is counted once by two processes


def test_accumulated_parts_follow_the_same_curve(quick, tmp_path):
    quick(tmp_path / "one", *EQUAL)
    quick(tmp_path / "parts", *EQUAL, "training.accumulate=4")
    assert curve(tmp_path / "parts") == pytest.approx(curve(tmp_path / "one"), abs=1e-5)


def test_a_run_started_by_one_process_is_ended_by_two(principal, quick, tmp_path):
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    quick(whole, *EQUAL)
    quick(moved, *EQUAL, stop_after=10)
    done = principal("train", "digits/rpc_symvit", *EQUAL, "--out", moved, "--resume", processes=2, threads=1)
    assert done.returncode == 0, done.stderr
    assert curve(moved) == pytest.approx(curve(whole), abs=1e-5)
    assert done.stdout.count("top-1") == 1  # printed by one process only


def test_asked_to_stop_all_processes_stop_after_the_same_step(principal, tmp_path):
    words = ("train", "digits/rpc_symvit", *EQUAL, "schedule.epochs=500", "--out", tmp_path)
    process = principal(*words, processes=2, threads=1, start=True)
    while process.poll() is None and not read_jsonl(tmp_path / "metrics.jsonl"):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)  # to the launcher, which passes it on
    _, said = process.communicate(timeout=60)
    assert "continue with --resume" in said
    assert "Connection closed" not in said
    assert list((tmp_path / "checkpoints").glob("step-*"))


def test_an_error_in_one_process_is_one_sentence(principal, tmp_path):
    """A broken image in the share of one process must not make the other process wait."""
    folder = class_folders(tmp_path / "data", 128)
    next((folder / "train" / "3").iterdir()).write_bytes(b"no image")
    words = ("train", "digits/rpc_symvit", *EQUAL, f"data.source={folder}", "--out", tmp_path / "run")
    done = principal(*words, processes=2, threads=1)
    assert done.returncode != 0
    assert done.stderr.count("cannot be read: not an image") == 1
    assert "Connection closed" not in done.stderr
