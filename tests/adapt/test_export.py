"""Robustified models have the same outputs after `torch.export` and ONNX export."""

import pytest
import torch

import principal_attention as pa
from families import build, inputs
from principal_attention import Pursuit

BATCH = torch.export.Dim("batch")


def first(out):
    return out if isinstance(out, torch.Tensor) else out[0]


@pytest.mark.filterwarnings("ignore:# The axis name")  # two inputs that share a batch
@pytest.mark.parametrize(
    ("name", "pursuit"),
    [
        *(("timm vit", Pursuit(4, 0.3, preset)) for preset in pa.PRESETS),
        ("timm beit", Pursuit(2, 0.3, "cleaned")),
        ("hf vit", Pursuit(2, 0.3, "cleaned")),
        ("bert", Pursuit(2, 0.3, "cleaned")),
        ("ours", Pursuit(2, 0.3, "cleaned")),
    ],
    ids=lambda given: given if isinstance(given, str) else given.preset,
)
@torch.no_grad()
def test_an_exported_model_computes_the_same_for_any_batch(name, pursuit, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = pa.robustify(build(name), pursuit=pursuit, layers="first")
    given = inputs(name)
    free = {key: {0: BATCH} for key in given}
    program = torch.export.export(model, (), given, dynamic_shapes=free)
    torch.onnx.export(model, (), tmp_path / "m.onnx", kwargs=given, dynamo=True, dynamic_shapes=free, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for times in (1, 2):
        more = {key: torch.cat([tensor] * times) for key, tensor in given.items()}
        expected = first(model(**more))
        scale = expected.abs().max()
        assert (first(program.module()(**more)) - expected).abs().max() <= 1e-5 * scale
        out = torch.from_numpy(session.run(None, {key: tensor.numpy() for key, tensor in more.items()})[0])
        # 1e-4 of the scale: other kernels sum in another order, and sigma = -1 doubles that with every iteration
        assert (out - expected).abs().max() <= 1e-4 * scale
