"""DeiT-tiny's published weights in our models; needs PRINCIPAL_DATA."""

import math
import os
from pathlib import Path

import principal_attention as pa  # isort: skip (first: helps torchvision, and with it timm, past a broken build)
import pytest
import timm
import torch

import principal_attention.vision.models

DATA = os.environ.get("PRINCIPAL_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="PRINCIPAL_DATA is not set: no DeiT-tiny weights")


def test_deit_tiny_interchanges_with_the_softmax_form():
    weights = Path(DATA) / "deit-tiny" / "model.safetensors"
    theirs = timm.create_model("deit_tiny_patch16_224", checkpoint_path=weights).eval()
    ours = timm.create_model(
        "rpc_asymvit_tiny_patch16_224", pursuit=pa.Pursuit(1, math.inf), checkpoint_path=weights
    ).eval()
    images = torch.randn(4, 3, 224, 224)
    with torch.inference_mode():
        # Logits of order 1: 1e-4 is what two orders of summation in float32 may differ by after twelve layers.
        torch.testing.assert_close(ours(images), theirs(images), atol=1e-4, rtol=0)
    theirs.load_state_dict(ours.state_dict())  # and back
