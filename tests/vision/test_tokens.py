"""Removing tokens: the same answers as a transformer that never had them, for every family; and refusals."""

import pytest
import timm
import torch
from torch import nn
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    ViTConfig,
    ViTForImageClassification,
)

from principal_attention import InputError, Pursuit
from principal_attention.vision.models import names  # noqa: F401  (registers the models)
from principal_attention.vision.models.classifier import HuggingFace
from principal_attention.vision.pixels import OnPixels
from principal_attention.vision.tokens import keeping, token_grid

SIDE, PATCH, GRID = 24, 6, 4
TINY = dict(img_size=SIDE, patch_size=PATCH, embed_dim=16, depth=2, num_heads=2, num_classes=5)
HF = dict(image_size=SIDE, patch_size=PATCH, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
          intermediate_size=32, num_labels=5)  # fmt: skip


def randomised(model):
    """Position embeddings of fresh models are near 0; with larger ones, a wrong place changes the answer."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.3 * torch.randn(each.shape, generator=generator))
    return model.eval()


def timm_tokens(model, images):
    """All tokens with their positions, in the order of timm's `_pos_embed` with a class token."""
    patches = model.patch_embed.proj(images).flatten(2).mT
    prefix = [model.cls_token] + ([model.dist_token] if getattr(model, "dist_token", None) is not None else [])
    return torch.cat([*(each.expand(len(images), -1, -1) for each in prefix), patches], 1) + model.pos_embed


def by_hand_timm(model, images, index):
    x = timm_tokens(model, images)[:, index]
    for block in model.blocks:
        x = block(x)
    x = model.norm(x)
    if getattr(model, "head_dist", None) is not None:
        return (model.head(x[:, 0]) + model.head_dist(x[:, 1])) / 2
    return model.head(x[:, 0])


def by_hand_huggingface(model, images, index):
    base = model.base_model
    stem = base.embeddings
    patches = stem.patch_embeddings.projection(images).flatten(2).mT
    prefix = [stem.cls_token] + ([stem.distillation_token] if hasattr(stem, "distillation_token") else [])
    x = torch.cat([*(each.expand(len(images), -1, -1) for each in prefix), patches], 1) + stem.position_embeddings
    x = x[:, index]
    for layer in base.layers:
        x = layer(x, None)
    x = base.layernorm(x)
    if hasattr(model, "cls_classifier"):
        return (model.cls_classifier(x[:, 0]) + model.distillation_classifier(x[:, 1])) / 2
    return model.classifier(x[:, 0])


FAMILIES = {
    "timm": lambda: timm.create_model("vit_tiny_patch16_224", **TINY),
    "timm distilled": lambda: timm.create_model("deit_tiny_distilled_patch16_224", **TINY),
    "SymViT": lambda: timm.create_model("symvit_tiny_patch16_224", **TINY),
    "RPC-SymViT": lambda: timm.create_model(
        "rpc_symvit_tiny_patch16_224", pursuit=Pursuit(2, 0.5, "cleaned"), layers="all", **TINY
    ),
    "ViT": lambda: ViTForImageClassification(ViTConfig(**HF)),
    "DeiT": lambda: DeiTForImageClassification(DeiTConfig(**HF)),
    "DeiT with teacher": lambda: DeiTForImageClassificationWithTeacher(DeiTConfig(**HF)),
}


def make(family):
    torch.manual_seed(0)
    return randomised(FAMILIES[family]())


def answer(model, images):
    output = model(images)
    return output if isinstance(output, torch.Tensor) else output.logits


@pytest.fixture
def images():
    return torch.rand(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kept_tokens_alone_go_through_the_blocks(family, images):
    model = make(family)
    prefix = token_grid(model).prefix
    assert prefix == (2 if family in ("timm distilled", "DeiT", "DeiT with teacher") else 1)
    by_hand = by_hand_timm if hasattr(model, "blocks") else by_hand_huggingface
    kept = torch.tensor([0, 3, 5, 6, 9, 15])
    expected = by_hand(model, images, torch.cat([torch.arange(prefix), kept + prefix]))
    with keeping(model, kept):
        found = answer(model, images)
    torch.testing.assert_close(found, expected)  # the same operations: float32's default tolerance
    assert not torch.allclose(found, answer(model, images), atol=1e-2)  # and the context has ended


def test_removed_tokens_are_as_if_no_query_saw_them(images):
    """timm's own mask: a key that every query ignores is a token that was removed."""
    model = make("timm")
    kept = torch.tensor([1, 2, 4, 8, 11, 12, 13])
    seen = torch.zeros(1 + GRID**2, dtype=torch.bool)
    seen[0], seen[kept + 1] = True, True
    masked = model.forward_head(model.forward_features(images, attn_mask=seen.expand(len(seen), -1)))
    with keeping(model, kept):
        torch.testing.assert_close(model(images), masked)  # float32's default tolerance


def test_positions_count_rows_of_the_image_first(images):
    """Pixels of a removed token have no effect, those of a kept token have one."""
    model = make("timm")
    kept = torch.tensor([i for i in range(GRID**2) if i != 6])  # row 1, column 2
    with keeping(model, kept):
        before = model(images)
        images[:, :, PATCH : 2 * PATCH, 2 * PATCH : 3 * PATCH] = 7.0
        assert torch.equal(model(images), before)
        images[:, :, 2 * PATCH : 3 * PATCH, PATCH : 2 * PATCH] = 7.0
        assert not torch.allclose(model(images), before)


@pytest.mark.parametrize("family", ["timm", "DeiT"])
def test_each_image_can_keep_tokens_of_its_own(family, images):
    model = make(family)
    positions = torch.stack([torch.arange(5), torch.arange(5, 10), torch.tensor([15, 0, 7, 3, 9])])
    with keeping(model, positions):
        together = answer(model, images)
    for image, kept, found in zip(images, positions, together, strict=True):
        with keeping(model, kept.sort().values):  # tokens are a set: their order has no effect
            torch.testing.assert_close(answer(model, image[None])[0], found)
    with keeping(model, positions[[0, 1, 2, 1]], rows=torch.tensor([0, 1, 2, 0])):
        more = answer(model, images)
    torch.testing.assert_close(more[:3], together)
    with keeping(model, positions[1]):
        torch.testing.assert_close(more[3], answer(model, images[:1])[0])


@pytest.mark.parametrize("family", ["timm", "RPC-SymViT", "ViT"])
def test_gradients_reach_the_kept_pixels_alone_in_training_mode(family, images):
    model = make(family).train()
    images.requires_grad_()
    with keeping(model, torch.stack([torch.arange(4)] * 3)):  # the first row of patches
        answer(model, images).square().sum().backward()
    assert (images.grad[:, :, :PATCH] != 0).any(1).float().mean() > 0.9
    assert not images.grad[:, :, PATCH:].any()
    grid = token_grid(model)
    assert grid.module.training
    assert not grid.module._forward_hooks
    assert not grid.module._forward_pre_hooks


def test_wrappers_are_looked_through():
    model = make("ViT")
    half = (0.5, 0.5, 0.5)
    for wrapped in (HuggingFace(model), OnPixels(HuggingFace(model), half, half), nn.Sequential(nn.Identity(), model)):
        assert token_grid(wrapped) == token_grid(model)
    grid = token_grid(make("timm distilled"))
    assert (grid.rows, grid.columns, grid.height, grid.width, grid.image) == (4, 4, 6, 6, (24, 24))
    tall = timm.create_model("vit_tiny_patch16_224", **TINY | {"img_size": (24, 36)})
    assert (token_grid(tall).rows, token_grid(tall).columns) == (4, 6)


def overlapping():
    model = make("timm")
    model.patch_embed.proj = nn.Conv2d(3, 16, 6, stride=6, padding=1)
    return model


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), "Sequential is no vision transformer of a known"),
        (lambda: timm.create_model("resnet10t", num_classes=2), "ResNet is no vision transformer of a known class"),
        (lambda: nn.ModuleList([make("timm"), make("timm")]), "ModuleList holds 2 vision transformers"),
        (overlapping, "the patches of VisionTransformer overlap"),
        (
            lambda: timm.create_model("vit_tiny_r_s16_p8_224", img_size=32, embed_dim=24, depth=1, num_heads=2),
            "with more than one layer",
        ),
    ],
)
def test_other_models_are_refused_with_a_sentence(model, sentence):
    with pytest.raises(InputError, match=sentence), keeping(model(), torch.arange(2)):
        pass


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        (torch.tensor([0, 16]), "positions run from 0 to 16; the model has patch tokens 0 to 15"),
        (torch.tensor([-1, 2]), "positions run from -1 to 2"),
        (torch.tensor([3, 3]), "occurs twice"),
        (torch.tensor([], dtype=torch.long), "positions are empty"),
        (torch.tensor([0.0]), "positions are torch.float32"),
        (torch.tensor([True, False]), "positions are torch.bool"),
        (torch.zeros(2, 1, dtype=torch.long), "positions have 2 rows and the batch has 3 images"),
    ],
)
def test_wrong_positions_are_refused(positions, sentence, images):
    model = make("timm")
    with pytest.raises(InputError, match=sentence), keeping(model, positions):
        model(images)
    assert len(model(images)) == 3  # and nothing of it stays in the model


def test_tokens_are_removed_once(images):
    model = make("timm")
    with (
        keeping(model, torch.arange(8)),
        keeping(model, torch.arange(4)),
        pytest.raises(InputError, match="there are 9 tokens to choose from; expected 17"),
    ):
        model(images)
