"""Output folders: used by one process at a time, and never by two different commands."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest

from principal_attention.errors import InputError
from principal_attention.plumbing import progress
from principal_attention.plumbing.files import replacing, write_text
from principal_attention.plumbing.outputs import MARKS, output_folder

HOLD = (
    "import sys, time; from pathlib import Path; from principal_attention.plumbing.outputs import output_folder\n"
    "with output_folder(Path(sys.argv[1]), 'an evaluation'):\n    print('held', flush=True); time.sleep(60)\n"
)


@pytest.fixture
def holder(tmp_path):
    """A process that locks the folder `held`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "held")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_told_who_holds_the_folder_until_that_one_dies(holder, tmp_path):
    with pytest.raises(InputError, match=rf"is in use by process {holder.pid}; wait for it to end"), \
         output_folder(tmp_path / "held", "an evaluation"):  # fmt: skip
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with output_folder(tmp_path / "held", "an evaluation"):
        assert (tmp_path / "held" / ".lock").read_text() == f"process {os.getpid()}\n"


@pytest.mark.parametrize("holds", MARKS)
def test_the_files_of_another_command_are_not_written_over(holds, tmp_path):
    (tmp_path / MARKS[holds]).touch()
    for other in MARKS:
        if other != holds:
            with pytest.raises(InputError, match=f"holds {holds}, whose files would be overwritten"), \
                 output_folder(tmp_path, other):  # fmt: skip
                pass
    with output_folder(tmp_path, holds):
        pass


def test_a_saved_model_is_not_written_over_and_an_empty_folder_does_not_stay(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    with pytest.raises(InputError, match="holds a model"), output_folder(tmp_path / "model", "a training run"):
        pass
    with pytest.raises(ZeroDivisionError), output_folder(tmp_path / "new", "a training run"):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_told_with_the_path(tmp_path):
    def fill():
        with replacing(tmp_path / "out.json") as partial:
            partial.symlink_to("/dev/full")
            partial.write_text("x" * 100_000)

    with pytest.raises(OSError, match=r"out\.json could not be written \(No space left on device\); make room"):
        fill()
    write_text(tmp_path / "out.json", "y")
    assert (tmp_path / "out.json").read_text() == "y"


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.make_progress() as bar:
        task = bar.add_task("evaluating", total=40, note="fgsm")
        time.sleep(0.01)
        bar.advance(task, 10)
    assert sys.stderr.getvalue().startswith("evaluating: 10 of 40, fgsm, 0.0 minutes left")
