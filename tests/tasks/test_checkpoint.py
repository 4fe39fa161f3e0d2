"""`--checkpoint last`: an unfinished run is evaluated with the weights of its newest checkpoint."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from evaluated import principal, records
from principal_attention.adapt.named import ModelRef
from principal_attention.cli.app import app
from principal_attention.errors import InputError
from principal_attention.tasks.checkpoint import model_at
from principal_attention.vision.models.load import load_classifier

FINISHED = ("config.json", "model.safetensors", "records.jsonl")


def unfinish(run):
    """Remove the files that only a finished run has."""
    for name in FINISHED:
        (run / name).unlink()


def test_the_newest_checkpoint_of_a_finished_run_gives_its_numbers(quick, tmp_path):
    quick(tmp_path / "run")
    principal(tmp_path / "run", "--out", tmp_path / "finished")
    unfinish(tmp_path / "run")
    files = sorted(tmp_path.joinpath("run").rglob("*"))
    assert "--checkpoint last" in principal(tmp_path / "run", "--out", tmp_path / "no", code=1)
    principal(tmp_path / "run", "--checkpoint", "last", "--out", tmp_path / "unfinished")
    assert sorted(tmp_path.joinpath("run").rglob("*")) == files  # the run is only read
    finished, unfinished = (records(tmp_path / name, metric="top1")[0] for name in ("finished", "unfinished"))
    assert unfinished["model"] == "run@step-12"
    assert {**unfinished, "model": "run", "seconds": finished["seconds"]} == finished


def test_an_interrupted_run_has_its_averaged_weights_of_that_step(quick, tmp_path):
    run = tmp_path / "run"
    quick(run, stop_after=5)
    step = sorted((run / "checkpoints").iterdir())[-1]
    expected = load_file(step / "ema.safetensors")
    with model_at(ModelRef.of(str(run)), "last") as ref:
        assert ref.name == f"run@step-{int(step.name.removeprefix('step-'))}"
        found = load_classifier(ref).model.state_dict()
    assert not ref.folder.exists()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)
    assert not torch.equal(expected["head.weight"], load_file(step / "model.safetensors")["head.weight"])


def test_a_language_model_generates_the_same_words(learn, tmp_path):
    run = tmp_path / "run"
    learn(run)
    words = ("generate", str(run), "A mill", "--tokens", "8")
    finished = CliRunner().invoke(app, words)
    unfinish(run)
    done = CliRunner().invoke(app, [*words, "--checkpoint", "last"])
    assert (done.exit_code, done.output) == (0, finished.output)


def test_damaged_checkpoints_are_passed_over_and_none_is_an_error(quick, tmp_path, capsys):
    run = tmp_path / "run"
    quick(run, stop_after=5)
    newest = sorted((run / "checkpoints").iterdir())[-1]
    (newest / "model.safetensors").write_bytes(b"cut")
    with model_at(ModelRef.of(str(run)), "last") as ref:
        assert ref.name == "run@step-4"
    assert f"{newest} is damaged" in capsys.readouterr().err
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(InputError, match="has no checkpoint yet"), model_at(ModelRef.of(str(run)), "last"):
        pass


@pytest.mark.parametrize(
    ("model", "checkpoint", "said"),
    [
        ("timm:deit_tiny_patch16_224", "last", "expected the folder of a run"),
        ("/nowhere", "last", "expected the folder of a run"),
        ("/nowhere", "first", "--checkpoint is 'first'; expected last"),
        ("/nowhere", "", "--checkpoint is ''; expected last"),
    ],
)
def test_anything_else_is_refused(model, checkpoint, said):
    with pytest.raises(InputError, match=said), model_at(ModelRef.of(model), checkpoint):
        pass
