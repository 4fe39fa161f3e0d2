"""A small model that knows four kinds of pictures, and a folder of them."""

import pytest
import torch
from PIL import Image

import principal_attention as pa
from evaluated import CLASSES, OPTIONS, create, fit, pictures, save


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """60 pictures as class folders, with a name that sorts them as the classes are."""
    root = tmp_path_factory.mktemp("pictures")
    images, labels = pictures(60, seed=1)
    for i, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        file = root / "val" / CLASSES[label] / f"{i:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255).byte().permute(1, 2, 0).numpy()).save(file)
    return root


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a SymViT."""
    torch.manual_seed(0)
    return save(fit(create("symvit_tiny_patch16_224", **OPTIONS)), tmp_path_factory.mktemp("models") / "sym")


@pytest.fixture(scope="session")
def pursuing(tmp_path_factory):
    """The folder of an RPC-SymViT that cuts some of its keys."""
    torch.manual_seed(0)
    options = OPTIONS | {"pursuit": {"iterations": 2, "lam": 0.3, "preset": "cleaned"}, "layers": "all"}
    made = OPTIONS | {"pursuit": pa.Pursuit(2, 0.3, "cleaned"), "layers": "all"}
    model = fit(create("rpc_symvit_tiny_patch16_224", **made))
    return save(model, tmp_path_factory.mktemp("models") / "rpc", options=options)
