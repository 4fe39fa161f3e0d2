"""A killed and resumed run ends with the same weights as an uninterrupted one."""

import json
import os
import signal
import time

import pytest

from principal_attention.errors import InputError, TrainingError
from principal_attention.plumbing.files import read_jsonl
from principal_attention.tasks import read_recipe, train
from runs import QUICK, class_folders


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
    """With a checkpoint after every step, so that some kills happen while one is written."""
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


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_ends_after_a_whole_step_and_says_how_to_go_on(principal, tmp_path, asked):
    """Terminals and job managers signal all processes at once, including data workers."""
    words = ("train", "digits/rpc_symvit", *QUICK, "schedule.epochs=200", "training.workers=1", "--out", tmp_path)
    process = principal(*words, start=True)
    while process.poll() is None and not read_jsonl(tmp_path / "metrics.jsonl"):
        time.sleep(0.05)
    os.killpg(process.pid, asked)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "continue with --resume" in said.splitlines()[-1]
    assert "Traceback" not in said
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
def test_a_damaged_checkpoint_is_found_and_the_one_before_it_used(quick, tmp_path, name, damage):
    """Final weights are the same as without the damage."""
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
    with pytest.raises(InputError, match=r"started with optimizer\.name=adamw, not sgd; that cannot change"):
        quick(tmp_path, "schedule.epochs=2", "optimizer.name=sgd", resume=True)


def test_resume_where_there_is_nothing_yet_starts(quick, tmp_path):
    """A job started with --resume may have been killed before its first step."""
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


@pytest.mark.parametrize("rate", ["1e30", "1e18"])
def test_a_loss_that_is_not_finite_stops_with_the_step_and_a_lower_rate_goes_on(quick, tmp_path, rate):
    """After one epoch the learning rate is raised until training diverges, and then lowered again."""
    quick(tmp_path, "schedule.epochs=2", "schedule.warmup_epochs=0", "optimizer.lr=1e-3")
    good = losses(tmp_path)
    words = ("schedule.epochs=4", "schedule.warmup_epochs=0")
    with pytest.raises(TrainingError, match=r"is (nan|inf) at step \d+; .*step-00000008 is kept; continue") as wrong:
        quick(tmp_path, *words, f"optimizer.lr={rate}", resume=True)
    assert "\n" not in str(wrong.value)
    quick(tmp_path, *words, "optimizer.lr=1e-3", resume=True)
    found = losses(tmp_path)
    assert found[:8] == good
    assert [step for step, _ in found] == list(range(1, 17))


def test_without_a_checkpoint_a_loss_that_is_not_finite_says_to_start_again(quick, tmp_path):
    with pytest.raises(
        TrainingError, match=r"there was no checkpoint yet; continue with --resume and a lower optimizer\.lr"
    ):
        quick(tmp_path, "schedule.warmup_epochs=0", "optimizer.lr=1e30")


@pytest.mark.parametrize("name", ["adamw", "sgd", "lamb", "lion", "lookahead_adamw"])
def test_every_optimizers_state_is_in_the_checkpoint(quick, tmp_path, name):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    quick(whole, f"optimizer.name={name}")
    quick(parts, f"optimizer.name={name}", stop_after=5)
    quick(parts, f"optimizer.name={name}", resume=True)
    assert weights(parts) == weights(whole)


def test_a_stream_is_resumed_where_it_was(quick, tmp_path):
    words = (
        f"data.source={class_folders(tmp_path / 'data', 256)}",
        "data.streaming=true",
        "data.shuffle_buffer=50",
        "training.workers=1",
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    quick(whole, *words, "augment.repeats=2")
    quick(parts, *words, "augment.repeats=2", stop_after=6)
    quick(parts, *words, "augment.repeats=2", resume=True)
    assert weights(parts) == weights(whole)


def test_a_resumed_run_logs_what_the_whole_one_does(quick, tmp_path):
    """Also if it was interrupted between two lines of the log."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    quick(whole, "training.log_every=3")
    quick(parts, "training.log_every=3", stop_after=7)
    quick(parts, "training.log_every=3", resume=True)
    assert losses(parts) == losses(whole)
    before = read_jsonl(parts / "metrics.jsonl")
    quick(parts, "training.log_every=3", resume=True)  # finished: nothing is added
    assert read_jsonl(parts / "metrics.jsonl") == before


def test_what_the_recipe_says_of_the_optimizer_is_taken_when_resuming(quick, tmp_path):
    quick(tmp_path, "schedule.epochs=2")
    quick(tmp_path, "optimizer.weight_decay=0.5", "optimizer.betas=[0.5, 0.6]", resume=True)
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    plain = json.loads((newest / "state.json").read_text())["optimizer"]
    assert plain["group1.weight_decay"] == 0.5
    assert plain["group1.betas"] == [0.5, 0.6]


def test_fewer_epochs_than_were_done_are_refused(quick, tmp_path):
    quick(tmp_path)
    with pytest.raises(InputError, match="has done 12 steps; the recipe has only 8"):
        quick(tmp_path, "schedule.epochs=2", resume=True)


def test_a_recipe_that_is_refused_leaves_its_folder_free(quick, tmp_path):
    for wrong in ("optimizer.name=nonesuch", "training.batch_size=63"):
        with pytest.raises(InputError):
            quick(tmp_path, wrong)
    quick(tmp_path)
