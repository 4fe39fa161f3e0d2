import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"  # as `principal` sets it
pytest_plugins = ["small_world", "small_runs"]  # fixtures that tests of several folders share


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def make():
    """make(*shape, count=2): Gaussian float64 tensors, the same for the same shape."""

    def tensors(*shape: int, count: int = 2, dtype: torch.dtype = torch.float64, seed: int = 0):
        random = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for _ in range(count)]

    return tensors


@pytest.fixture(scope="session")
def python():
    """python(code, *arguments, **environment): run code in a new process.

    The process has the same sys.path, but does not read .pth files, because one of them may import this package.
    """

    def run(code: str, *arguments: object, **environment: str):
        command = [sys.executable, "-S", "-W", "ignore", "-c", code, *map(str, arguments)]
        path = [environment.pop("PYTHONPATH", ""), *sys.path]
        changed = os.environ | environment | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        return subprocess.run(command, capture_output=True, text=True, env=changed, check=False)

    return run


@pytest.fixture(scope="session")
def benchmark():
    """benchmark(name): import a script of benchmarks/ as a module."""

    def load(name: str):
        path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(path.parent)  # the scripts import each other
            spec.loader.exec_module(module)
        return module

    return load
