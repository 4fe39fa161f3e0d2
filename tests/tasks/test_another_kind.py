"""A kind registered by the tests is trained, killed, resumed, evaluated, compared and reported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from principal_attention.cli.app import build_app
from principal_attention.plumbing.files import read_jsonl
from principal_attention.report.evaluation import check_lines, comparison_tables, tables
from principal_attention.tasks import register, registry

# `principal` with the kind registered, as a package of its own would do it.
COMMAND = (
    "from principal_attention.tasks import register; register('numbers', 'toy_numbers');"
    "from principal_attention.cli import main; main()"
)
RECIPE = """
task: numbers
name: ruler
model: {name: ruler, options: {width: 16}}
data: {source: digits}
optimizer: {lr: 0.01}
schedule: {epochs: 15, min_lr: 0.001}
training: {batch_size: 64, log_every: 1, checkpoint_minutes: 0}
"""


@pytest.fixture(scope="module", autouse=True)
def _registered():
    register("numbers", "toy_numbers")
    yield
    registry._ROOMS.pop("numbers")


def principal(*words, code=0):
    """Output of the command, run in this process."""
    done = CliRunner().invoke(build_app(), [str(word) for word in words], env={"COLUMNS": "100"})
    assert done.exit_code == code, done.output
    return done.output


def killed(file, lines, *words):
    """Run the command in a new process, and kill it when the file has this number of lines."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    command = [sys.executable, "-W", "ignore", "-c", COMMAND, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and file.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Folder with the recipe, an uninterrupted run, a killed and resumed run, and a run with another seed."""
    root = tmp_path_factory.mktemp("numbers")
    (root / "ruler.yaml").write_text(RECIPE)
    principal("train", root / "ruler.yaml", "--out", root / "whole")
    words = ("train", root / "ruler.yaml", "--out", root / "killed")
    killed(root / "killed" / "metrics.jsonl", 40, *words)
    assert not (root / "killed" / "records.jsonl").exists()  # it was killed before the end
    principal(*words, "--resume")
    principal("train", root / "ruler.yaml", "seed=1", "--out", root / "other")
    return root


def test_a_killed_training_ends_as_one_that_was_left_alone(world):
    whole, again = (load_file(world / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(whole[name].equal(again[name]) for name in whole)
    (found,) = read_jsonl(world / "whole" / "records.jsonl")
    assert (found["task"], found["metric"], found["suite"]) == ("numbers", "error", "clean")
    assert found["value"] < 1.5  # it has learned to read; guessing the mean is off by 2.5
    assert read_jsonl(world / "killed" / "records.jsonl") == [found]


def without_time(folder):
    return [{key: x for key, x in r.items() if key != "seconds"} for r in read_jsonl(folder / "records.jsonl")]


def test_it_is_measured_resumed_compared_and_reported(world, tmp_path):
    words = ("--suite", "clean,dark", "--dark", 0.3, "--batch-size", 1)
    principal("evaluate", world / "other", *words, "--out", tmp_path / "other")
    killed(tmp_path / "out" / "outcomes-0.jsonl", 5, "evaluate", world / "whole", *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out" / "records.jsonl").exists()
    said = principal("evaluate", world / "whole", *words, "--out", tmp_path / "out", "--against", tmp_path / "other")
    principal("evaluate", world / "whole", *words, "--out", tmp_path / "one", "--against", tmp_path / "other")
    assert without_time(tmp_path / "out") == without_time(tmp_path / "one")

    records = read_jsonl(tmp_path / "out" / "records.jsonl")
    trained = read_jsonl(world / "whole" / "records.jsonl")[0]["value"]
    errors = {r["case"]: r["value"] for r in records if r["metric"] == "error"}
    assert errors["clean"] == pytest.approx(trained)
    assert errors["dark"] > errors["clean"]
    (table,) = tables(records)  # from records alone
    assert table.rows[1:] == [
        ["clean", "digits/test", f"{errors['clean']:.3f}"], ["dark", "light 0.3", f"{errors['dark']:.3f}"]
    ]  # fmt: skip
    assert check_lines(records) == ["✓ light 0.3"]
    other = {r["case"]: r["value"] for r in read_jsonl(tmp_path / "other" / "records.jsonl") if r["metric"] == "error"}
    (compared,) = comparison_tables(records)
    assert [float(row[3]) for row in compared.rows[1:]] == [
        pytest.approx(other[case] - errors[case], abs=5e-3) for case in ("clean", "dark")
    ]  # fmt: skip
    for word in ("off by", "light 0.3", "Was it dark?", "difference to other"):
        assert word in said


def test_its_options_are_on_the_command_line_and_only_there_for_it(world, tmp_path, trained, folder):
    shown = principal("evaluate", "--help")
    assert "Options of --suite dark (readers of numbers)" in shown
    assert "Share of the light that is left. Default: 0.5." in shown
    assert "readers of numbers" in principal("list", "suites")
    mistakes = {
        (
            "--dark",
            0.5,
        ): "--dark is an option of --suite dark, and --suite is clean; add dark to --suite, or drop",
        ("--suite", "dark", "--dark", 2): "--dark is '2'; expected less than or equal to 1",
        ("--eps", "1/255"): "--eps is an option of image classifiers;",
        ("--suite", "attacks"): "there is no suite of readers of numbers 'attacks'; expected one of clean, dark",
    }
    for words, sentence in mistakes.items():
        assert sentence in principal("evaluate", world / "whole", *words, "--out", tmp_path, code=1)
    said = principal("evaluate", trained, "--data", folder, "--dark", 0.5, "--out", tmp_path, code=1)
    assert "--dark is an option of readers of numbers;" in said
    said = principal("analyze", world / "whole", "--out", tmp_path, code=1)
    assert "is one of readers of numbers, whose heads cannot be analysed" in said


def test_it_can_be_robustified_by_name(world, tmp_path):
    words = ("evaluate", world / "whole", "--robustify", "preset=cleaned,iterations=2,lam=0.1", "--out", tmp_path)
    principal(*words)
    (found,) = read_jsonl(tmp_path / "records.jsonl")
    assert found["robustify"] == "preset=cleaned,iterations=2,lam=0.1,layers=all,form=query"
