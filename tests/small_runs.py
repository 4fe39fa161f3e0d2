"""Trainings of seconds, in this process and as commands."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from principal_attention.errors import Interrupted
from principal_attention.tasks import read_recipe, train
from principal_attention.training.logs import RunLog
from runs import QUICK
from small_texts import QUICK_LANGUAGE


@pytest.fixture
def quick(monkeypatch):
    """quick(folder, *overrides, **options): train RPC-SymViT on a few digits in this process.

    With `stop_after` the process is asked to stop (SIGTERM) as soon as this step is logged.
    """

    def run(folder, *overrides, recipe="digits/rpc_symvit", base=QUICK, stop_after=None, **options):
        silent = Progress(console=Console(file=io.StringIO()))
        checked = read_recipe(recipe, [*base, *overrides])
        if stop_after is None:
            return train(checked, Path(folder), progress=silent, tensorboard=False, **options)
        advance = RunLog.line

        def line(self, values):
            advance(self, values)
            if values["step"] >= stop_after:
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(RunLog, "line", line)
        with pytest.raises(Interrupted):
            train(checked, Path(folder), progress=silent, tensorboard=False, **options)
        monkeypatch.setattr(RunLog, "line", advance)
        return None

    return run


@pytest.fixture
def principal():
    """principal(*words, processes=1, start=False): the command, under torchrun for several processes."""

    def run(*words, processes=1, start=False, threads=None):
        command = [sys.executable, "-W", "ignore", "-m"]
        if processes > 1:
            command += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        command += ["principal_attention", *map(str, words)]
        environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
        options = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        if start:
            return subprocess.Popen(command, start_new_session=True, **options)
        return subprocess.run(command, check=False, **options)

    return run


@pytest.fixture
def learn(quick, lines):
    """learn(folder, *overrides): a language model of a few hundred words."""

    def run(folder, *overrides, recipe="wikitext_small/rpc_symlm", **options):
        return quick(folder, f"data.source={lines}", *overrides, recipe=recipe, base=QUICK_LANGUAGE, **options)

    return run
