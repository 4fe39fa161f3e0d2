"""`track: kernel_pca`: the numbers logged per epoch; training is not affected."""

import json

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from principal_attention.cli.app import app
from runs import QUICK

FEW = ("data.limit=64", "schedule.epochs=2")  # 17 tokens for heads of 8


def train(*arguments, code=0):
    found = CliRunner().invoke(app, ["train", "digits/symvit", *QUICK, *FEW, *map(str, arguments)])
    assert found.exit_code == code, found.output
    return found.output


def tracked(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "kernel_pca_overlap" in line]


def test_an_epoch_is_a_line_and_looking_changes_nothing(tmp_path):
    said = train("track=kernel_pca", "--out", tmp_path / "seen")
    assert "kernel_pca.png" in said
    assert (tmp_path / "seen" / "kernel_pca.png").stat().st_size > 10_000
    lines = tracked(tmp_path / "seen")
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    for line in lines:
        layers = [line[f"kernel_pca_overlap_{layer}"] for layer in range(2)]
        assert line["kernel_pca_overlap"] == pytest.approx(sum(layers) / 2)
        assert 0 < line["kernel_pca_overlap"] < 1
        assert line["kernel_pca_j_proj"] == pytest.approx(line["kernel_pca_phi_norm"] - line["kernel_pca_h_norm"])
    assert lines[0]["kernel_pca_j_proj"] != lines[1]["kernel_pca_j_proj"]
    train("--out", tmp_path / "unseen")
    seen, unseen = (load_file(tmp_path / name / "model.safetensors") for name in ("seen", "unseen"))
    assert all(torch.equal(seen[name], unseen[name]) for name in seen)


def test_a_resumed_run_logs_no_epoch_twice(tmp_path):
    train("track=kernel_pca", "--out", tmp_path)
    train("track=kernel_pca", "schedule.epochs=3", "--out", tmp_path, "--resume")
    assert [line["epoch"] for line in tracked(tmp_path)] == [0, 1, 2, 3]


def test_tokens_that_are_too_few_are_refused_before_anything_is_written(tmp_path):
    said = train("track=kernel_pca", "model.options.num_heads=1", "--out", tmp_path / "run", code=1)
    assert "17 tokens and the heads' values 24 columns" in said
    assert not (tmp_path / "run" / "recipe.yaml").exists()
    assert "expected 'kernel_pca'" in train("track=everything", "--out", tmp_path / "run", code=1)
