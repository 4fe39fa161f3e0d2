"""A run that was killed ends with the very same weights as one that was not."""

import json
import os
import shutil
import signal
import time

import pytest

from principal_attention._files import read_jsonl
from principal_attention.errors import InputError, TrainingError
from principal_attention.recipes import read_recipe
from principal_attention.training import train
from runs import QUICK


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def losses(folder):
    return [(line["step"], line["loss"]) for line in read_jsonl(folder / "metrics.jsonl") if "loss" in line]


def kill_after(process, folder, step):
    """kill -9 the whole process group once the run has logged this step."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(line["step"] >= step for line in read_jsonl(folder / "metrics.jsonl")):
            break
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_kill_9_at_any_moment_then_resume_is_bit_identical(principal, tmp_path):
    """With a checkpoint after every step, so that some kills fall into the writing of one."""
    words = ("train", "digits/rpc_symvit", *QUICK, "training.workers=1", "training.checkpoint_minutes=0", "--out")
    whole = principal(*words, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    killed = tmp_path / "killed"
    for step in (2, 7):
        kill_after(principal(*words, killed, *(["--resume"] if step > 2 else []), start=True), killed, step)
        assert not (killed / "model.safetensors").exists()
    resumed = principal(*words, killed, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "continuing after step" in resumed.stderr
    assert weights(killed) == weights(tmp_path / "whole")
    assert losses(killed) == losses(tmp_path / "whole")
    assert (killed / "records.jsonl").read_bytes() == (tmp_path / "whole" / "records.jsonl").read_bytes()


def test_sigterm_ends_after_a_whole_step_and_says_how_to_go_on(principal, quick, tmp_path):
    words = ("train", "digits/rpc_symvit", *QUICK, "schedule.epochs=200", "--out", tmp_path)
    process = principal(*words, start=True)
    while process.poll() is None and not read_jsonl(tmp_path / "metrics.jsonl"):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "continue with --resume" in said.splitlines()[-1]
    assert list((tmp_path / "checkpoints").glob("step-*"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", cut),
        ("optimizer.safetensors", flip_a_bit),
        ("ema.safetensors", os.remove),
        ("state.json", cut),
        ("state.json", lambda path: path.write_text("[]")),
    ],
)
def test_a_damaged_checkpoint_is_found_and_the_one_before_it_used(quick, tmp_path, capsys, name, damage):
    """The end is the same as without the damage."""
    quick(tmp_path / "run")
    whole = weights(tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    damage(newest / name)
    (tmp_path / "run" / "model.safetensors").unlink()
    quick(tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == whole


def test_where_every_checkpoint_is_damaged_the_run_says_so(quick, tmp_path):
    quick(tmp_path)
    for checkpoint in (tmp_path / "checkpoints").iterdir():
        cut(checkpoint / "model.safetensors")
    with pytest.raises(InputError, match=r"every checkpoint in .* is damaged"):
        quick(tmp_path, resume=True)


def test_a_run_is_not_overwritten_by_mistake(quick, tmp_path):
    quick(tmp_path, "schedule.epochs=2")
    with pytest.raises(InputError, match=r"already a run .* continue it with --resume, or choose another --out"):
        quick(tmp_path, "schedule.epochs=2")
    with pytest.raises(InputError, match=r"started with optimizer\.name=adamw, not sgd: that cannot change"):
        quick(tmp_path, "schedule.epochs=2", "optimizer.name=sgd", resume=True)


def test_resume_where_there_is_nothing_yet_starts(quick, tmp_path):
    """A job that is always started with --resume may be killed before its first step."""
    quick(tmp_path / "run", resume=True)
    quick(tmp_path / "other")
    assert weights(tmp_path / "run") == weights(tmp_path / "other")


def test_a_run_is_resumed_from_any_folder(quick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick("first", "schedule.epochs=2")
    (tmp_path / "elsewhere").mkdir()
    words = ("model=null", "init_from=first", "data.limit=256", "schedule.epochs=2", "schedule.warmup_epochs=1")
    quick("second", base=words)
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(read_recipe("../second"), tmp_path / "second", resume=True, tensorboard=False)


def test_what_may_change_on_the_way_may(quick, tmp_path):
    """A longer schedule continues from where the shorter one ended."""
    quick(tmp_path, "schedule.epochs=2")
    quick(tmp_path, resume=True)
    assert [step for step, _ in losses(tmp_path)] == list(range(1, 13))


@pytest.mark.parametrize("override", ["optimizer.lr=1e30", "optimizer.lr=1e18"])
def test_a_loss_that_is_not_finite_stops_with_the_step_and_keeps_the_last_good_state(quick, tmp_path, override):
    wild = [each for each in QUICK if "warmup" not in each] + ["schedule.warmup_epochs=0", override]
    with pytest.raises(TrainingError, match=r"is (nan|inf) at step (\d+); the weights before it are kept") as wrong:
        quick(tmp_path, base=wild)
    step = int(str(wrong.value).split("at step ")[1].split(";")[0])
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    assert json.loads((newest / "state.json").read_text())["step"] == step - 1
    # A lower rate goes on from there; the weights are finite, if hardly good.
    again = tmp_path / "again"
    shutil.copytree(tmp_path, again, ignore=shutil.ignore_patterns("again"))
    with pytest.raises(TrainingError, match=f"at step {step}"):  # the same rate fails at the same step
        quick(again, base=wild, resume=True)
