"""Regression tests: mistakes that led to wrong numbers without an error."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import principal_attention as pa
from evaluated import principal, records
from principal_attention.cli.app import app
from principal_attention.errors import InputError
from principal_attention.tasks.texts import TextInputs


def test_a_runs_own_data_have_the_split_that_was_asked_for(quick, tmp_path):
    quick(tmp_path / "run", "schedule.epochs=1", "schedule.warmup_epochs=0")
    principal(tmp_path / "run", "--split", "train", "--out", tmp_path / "train")
    principal(tmp_path / "run", "--out", tmp_path / "own")
    train, own = (records(tmp_path / name, metric="top1")[0] for name in ("train", "own"))
    assert (train["data"], train["n"]) == ("digits/train", 1437)
    assert (own["data"], own["n"]) == ("digits/validation", 256)  # the recipe's limit
    assert "has no split 'nowhere'" in principal(
        tmp_path / "run", "--split", "nowhere", "--out", tmp_path / "x", code=1
    )


def test_a_run_that_is_trained_further_is_no_starting_point(quick, tmp_path):
    quick(tmp_path / "run", "schedule.epochs=1", "schedule.warmup_epochs=0")
    (tmp_path / "run" / "records.jsonl").unlink()  # as during further training
    with pytest.raises(InputError, match="has not finished; continue it with"):
        quick(tmp_path / "next", "model=null", f"init_from={tmp_path / 'run'}", base=())


def test_changed_texts_are_another_analysis(language):
    texts = ["A mill stood by the river where the road turned to the sea ."] * 3
    first, second = (
        TextInputs(str(language), given, "texts", count=3) for given in (texts, [*texts[:2], f"{texts[2]} It froze ."])
    )
    assert first.fingerprint() != second.fingerprint()
    assert first.fingerprint() == TextInputs(str(language), texts, "texts", count=1).fingerprint()  # more may be added


def test_a_budget_beyond_the_image_is_refused(folder, trained, tmp_path):
    said = principal(trained, "--data", folder, "--suite", "attacks", "--eps", "8", "--out", tmp_path / "out", code=1)
    assert "--eps is 8, and pixels run from 0 to 1: expected at most 1; for 8 grey levels write 8/255" in said


def test_weights_that_are_no_numbers_are_refused_by_name(folder, trained, tmp_path):
    broken = tmp_path / "model"
    broken.mkdir()
    for file in trained.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    tensors = load_file(broken / "model.safetensors")
    tensors["blocks.1.mlp.fc1.weight"][0, 0] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    said = principal(broken, "--data", folder, "--out", tmp_path / "out", code=1)
    assert "weights are damaged: blocks.1.mlp.fc1.weight holds NaN or infinity" in said


def test_an_evaluation_does_not_write_over_the_run_it_measures(quick, tmp_path):
    quick(tmp_path / "run", "schedule.epochs=1", "schedule.warmup_epochs=0")
    before = (tmp_path / "run" / "records.jsonl").read_bytes()
    said = principal(tmp_path / "run", "--out", tmp_path / "run", code=1)
    assert "holds a training run, whose files would be overwritten; choose another --out" in said
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == before


@pytest.mark.filterwarnings("ignore")  # torch's warnings that tracing is deprecated and follows one branch only
def test_tracing_with_gradients_gives_the_same():
    layer = pa.SelfAttention(16, 2, pa.RPC(pa.Pursuit(3, 0.3, "cleaned")))
    x = torch.randn(1, 7, 16, requires_grad=True)
    traced = torch.jit.trace(layer, (x,), check_trace=False)
    torch.testing.assert_close(traced(x), layer(x))


def test_unknown_words_are_not_printed_unless_asked_for(language):
    def said(*more):
        done = CliRunner().invoke(
            app, ["generate", str(language), "A mill", "--tokens", "60", "--temperature", "5", *more]
        )
        assert done.exit_code == 0, done.output
        return done.output

    assert "<unk>" not in said("--top-p", "1")
    assert "<unk>" in said("--top-p", "1", "--unknown-words")


@pytest.mark.parametrize("words", [["--help"], ["list", "recipes"]])
def test_an_output_that_cannot_be_written_is_one_sentence(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "principal_attention", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


def test_the_command_line_answers_without_torch(python):
    code = (
        "import sys; sys.argv = ['principal', {}]\nfrom principal_attention.cli import main\n"
        "try: main()\nexcept SystemExit: print('torch' in sys.modules, file=sys.stderr)"
    )
    for words in ("'--help'", "'list', 'recipes'", "'evaluate', '--help'"):
        assert python(code.format(words)).stderr.strip() == "False"
