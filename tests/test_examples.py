"""The examples run, with fewer epochs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {"harden_timm": "with RPC-Attention, after fine-tuning", "harden_huggingface": "saved and loaded again"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_runs(path, tmp_path):
    options = ["--epochs", "1", *(["--seeds", "1"] if "timm" in path.stem else [])]
    done = subprocess.run(
        [sys.executable, str(path), *options], capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert SAYS[path.stem] in done.stdout
