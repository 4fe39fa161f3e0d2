"""`import principal_attention` does not import torchvision or transformers, but acts when they are imported."""

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "import principal_attention, timm; print(timm.create_model('vit_tiny_patch16_224', depth=1).num_features)",
        "import principal_attention.installs.torchvision, torchvision; print(torchvision.ops.nms is not None, 192)",
    ],
)
def test_torchvision_imports_whatever_it_was_built_for(python, code):
    assert "192" in (done := python(code)).stdout, done.stderr


def test_asking_for_a_module_does_not_spend_the_hook(python):
    """transformers checks for torchvision before it is imported."""
    code = (
        "import principal_attention, importlib.util as u, sys;"
        "u.find_spec('torchvision'); u.find_spec('transformers.modeling_utils');"
        "assert 'torchvision' not in sys.modules;"
        "import torchvision; from transformers import AttentionInterface;"
        "print('rpc' in AttentionInterface._global_mapping, torchvision.__name__)"
    )
    assert (done := python(code)).stdout.strip() == "True torchvision", done.stderr


def test_modules_that_are_not_there_stay_missing_and_other_errors_pass(python):
    code = (
        "import sys, principal_attention as pa\n"
        "from principal_attention.installs.on_import import _Finder\n"
        "from principal_attention.installs.torchvision import execute as _torchvision\n"
        "finder = _Finder({'no_such_module_here': _torchvision})\n"
        "assert finder.find_spec('no_such_module_here') is None\n"
        "def broken(module): raise RuntimeError('out of memory')\n"
        "try: _torchvision(broken, sys)\n"
        "except RuntimeError as error: print(error)\n"
    )
    assert (done := python(code)).stdout.strip() == "out of memory", done.stderr


@pytest.mark.parametrize("order", ["principal_attention, transformers.modeling_utils", None])
def test_an_old_transformers_is_left_alone(python, order, tmp_path):
    """A transformers version without an attention interface breaks neither the import nor other models."""
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "modeling_utils.py").write_text("class PreTrainedModel: ...")
    order = order or "transformers.modeling_utils, principal_attention"
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {order}; import principal_attention as pa, torch;"
        "print(pa.robustify(torch.nn.MultiheadAttention(8, 2), pursuit=pa.Pursuit()))"
    )
    assert "rpc=Pursuit" in done.stdout, done.stderr
