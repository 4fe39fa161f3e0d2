import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from principal_attention.recipes import read_recipe
from principal_attention.training import train
from runs import QUICK


@pytest.fixture
def quick():
    """quick(folder, *overrides, **options): train RPC-SymViT on a few digits in this process."""

    def run(folder, *overrides, recipe="digits/rpc_symvit", base=QUICK, **options):
        silent = Progress(console=Console(file=io.StringIO()))
        checked = read_recipe(recipe, [*base, *overrides])
        return train(checked, Path(folder), progress=silent, tensorboard=False, **options)

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
