"""Token pursuit in image classifiers: statistics from image data, and folders that open with the same outputs."""

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import principal_attention as pa
from principal_attention.adapt.named import ModelRef
from principal_attention.adapt.spec import Robustify
from principal_attention.errors import InputError
from principal_attention.vision.models.calibration import CalibrationImages
from principal_attention.vision.models.classifier import Classifier, View
from principal_attention.vision.models.load import load_classifier, untrained_classifier

SMALL = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4)
VIEW = View(32, 3, (0.5,) * 3, (0.25,) * 3, 10)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with splits train (40 images) and test (12)."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = torch.Generator().manual_seed(0)
    for split, count in (("train", 20), ("test", 6)):
        for name in ("a", "b"):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = torch.randint(0, 256, (32, 32, 3), generator=generator, dtype=torch.uint8)
                Image.fromarray(pixels.numpy()).save(folder / split / name / f"{number}.png")
    return folder


def network(name="vit_tiny_patch16_224"):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=10, **SMALL).eval()


def images():
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_images_are_the_same_every_time_and_need_no_labels(pictures, tmp_path):
    found = CalibrationImages(VIEW, str(pictures), None, 34)
    batches = list(found)
    assert [len(b) for b in batches] == [32, 2]
    again = list(found)
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))
    assert batches[0].min() >= -2  # normalised: (0 − 0.5)/0.25
    assert found.examples.split.name == "train"
    assert CalibrationImages(VIEW, str(pictures), "test", 12).examples.split.name == "test"
    with pytest.raises(InputError, match=r"calibrate_images is 300 and split train of .* has 40 images"):
        CalibrationImages(VIEW, str(pictures), None, 300)
    with pytest.raises(InputError):
        CalibrationImages(VIEW, str(tmp_path / "nothing"), None, 3)


@torch.no_grad()
def test_from_the_words_of_the_command_line(pictures, tmp_path):
    save_file(network().state_dict(), tmp_path / "model.safetensors")
    network_ = network()
    Classifier(network_, VIEW, SMALL).save(tmp_path / "plain")
    words = f"preset=tokens,quantile=0.7,layers=all,calibrate={pictures},calibrate_images=40"
    made = load_classifier(ModelRef.of(tmp_path / "plain", Robustify.parse(words)))
    data = CalibrationImages(made.view, str(pictures), None, 40)
    expected = pa.robustify(network_, pursuit=pa.TokenPursuit(0.7), layers="all", calibrate=list(data))
    torch.testing.assert_close(made.model(images()), expected(images()))


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "symvit_tiny_patch16_224", "rpc_asymvit_tiny_patch16_224"])
@torch.no_grad()
def test_a_saved_folder_opens_with_the_same_outputs(name, tmp_path):
    model, data = network(name), torch.randn(30, 3, 32, 32)
    layers = [1] if name.startswith("rpc") else "all"  # its first layer was made with RPC-Attention
    pa.robustify(model, pursuit=pa.TokenPursuit(0.6), layers=layers, calibrate=data)
    out = model(images())
    if name.startswith("vit"):
        Classifier(model, VIEW, SMALL).save(tmp_path)
    else:
        model.save_pretrained(tmp_path)
    opened = load_classifier(str(tmp_path))
    assert torch.equal(opened.model(images()), out)
    opened.save(tmp_path / "again")
    assert torch.equal(load_classifier(str(tmp_path / "again")).model(images()), out)
    untrained = untrained_classifier(opened)
    keys = [key for key in opened.model.state_dict() if "rpc_" in key]
    assert len(keys) == 4 * (1 if name.startswith("rpc") else 2)
    assert all(torch.equal(untrained.state_dict()[key], opened.model.state_dict()[key]) for key in keys)
    assert untrained(images()).isfinite().all()
    assert not torch.equal(untrained(images()), out)


@torch.no_grad()
def test_a_hugging_face_classifier_opens_with_the_same_outputs(tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    from principal_attention.vision.models.classifier import HuggingFace

    small = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    model = ViTForImageClassification(ViTConfig(**small, image_size=32, patch_size=8, num_labels=10)).eval()
    pa.robustify(model, pursuit=pa.TokenPursuit(0.6), layers=[0], calibrate=torch.randn(30, 3, 32, 32))
    made = Classifier(HuggingFace(model), VIEW, {})
    made.save(tmp_path)
    opened = load_classifier(f"hf:{tmp_path}")
    assert torch.equal(opened.model(images()), made.model(images()))
    assert untrained_classifier(opened)(images()).isfinite().all()
    again = untrained_classifier(opened)
    kept = pa.restore(again.network)
    assert not [key for key in kept.state_dict() if "rpc_" in key]
