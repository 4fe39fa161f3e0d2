"""`python -m principal_attention.installs` in a new environment that sees the packages of this one."""

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import principal_attention
from principal_attention.installs.__main__ import FILE


@pytest.fixture
def environment(tmp_path):
    """Python and site-packages of a new environment. It sees this environment's packages through `sys.path`, without
    their .pth files."""
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env" / "lib").glob("python3*/site-packages"))
    torch = Path(importlib.util.find_spec("torch").origin).parent.parent
    (site / "packages.pth").write_text(f"{torch}\n{Path(principal_attention.__file__).parent.parent}\n")
    return tmp_path / "env" / "bin" / "python", site


def run(python, *words):
    return subprocess.run([python, *words], capture_output=True, text=True, check=False)


def test_timm_is_imported_first(environment):
    python, site = environment
    before = run(python, "-c", "import timm")
    done = run(python, "-m", "principal_attention.installs")
    assert done.returncode == 0, done.stderr
    assert run(python, "-c", "import timm").returncode == 0
    if before.returncode:  # torchvision was built for another build of torch
        assert "torchvision::" in before.stderr
        assert FILE in done.stdout
        assert run(python, "-c", "import sys; assert 'torch' not in sys.modules").returncode == 0
    else:
        assert not (site / FILE).exists()


def test_nothing_is_written_without_torchvision(tmp_path):
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env" / "lib").glob("python3*/site-packages"))
    (site / "packages.pth").write_text(f"{Path(principal_attention.__file__).parent.parent}\n")
    done = run(tmp_path / "env" / "bin" / "python", "-m", "principal_attention.installs")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (site / FILE).exists()


def test_an_uninstalled_package_leaves_python_silent(environment):
    python, site = environment
    run(python, "-m", "principal_attention.installs")
    (site / "packages.pth").unlink()
    done = run(python, "-c", "print(1)")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_the_environment_of_the_makefile_is_sound():
    done = run(sys.executable, "-c", "import timm, principal_attention")
    assert done.returncode == 0, done.stderr
