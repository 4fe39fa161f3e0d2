"""The package as installed: the wheel, an import that needs only torch, types."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import principal_attention as pa

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_installs_and_works(python, wheel, tmp_path):
    names = zipfile.ZipFile(wheel).namelist()
    assert "principal_attention/py.typed" in names
    assert not [n for n in names if n.startswith(("tests", "benchmarks", "docs"))]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    done = python(
        "import principal_attention as pa, torch; k = torch.randn(5, 4);"
        "print(pa.__file__, pa.rpc_attention(k, k, pursuit=pa.Pursuit()).shape)",
        PYTHONPATH=str(tmp_path),
    )
    assert str(tmp_path) in done.stdout, done.stderr
    assert "torch.Size([5, 4])" in done.stdout
    assert (tmp_path / "bin" / "principal").exists()


def test_importing_needs_torch_alone_and_loads_nothing_heavy(python):
    heavy = ("sklearn", "scipy", "matplotlib", "timm", "transformers", "torchvision", "typer", "rich", "torch._dynamo")
    code = (
        "import torch, sys; before = set(sys.modules); import principal_attention;"
        "print(sorted(m for m in set(sys.modules) - before if m.split('.')[0] != 'principal_attention'))"
    )
    added = python(code).stdout
    assert added.startswith("[")
    assert not [name for name in heavy if f"'{name}" in added], added


def test_a_missing_extra_is_named_with_the_command_that_installs_it(python):
    block = "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.base'] = None;"
    assert python(block + "from principal_attention import *; Pursuit()").returncode == 0
    done = python(block + "import principal_attention as pa; pa.RobustPCA")
    assert "RobustPCA needs sklearn" in done.stderr
    assert "pip install 'principal-attention[report]'" in done.stderr
    done = python("import sys; sys.modules['typer'] = None; from principal_attention.cli import main; main()")
    assert done.returncode == 1
    assert done.stderr == ("principal: the command line needs typer: pip install 'principal-attention[report]'\n")


def test_the_public_names_are_all_there():
    for name in (*pa.__all__, "RobustPCA", "restore", "robustify"):
        assert getattr(pa, name) is not None
        assert name in dir(pa)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pa.nothing
