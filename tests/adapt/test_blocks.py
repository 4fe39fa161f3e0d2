"""Blocks of networks: their number and order, their outputs, and what stays trainable."""

import pytest
import timm
import torch
from torch import nn

import principal_attention as pa
from principal_attention.adapt.blocks import Features, blocks, freeze_after
from principal_attention.errors import InputError
from principal_attention.vision.pixels import OnPixels

HALF = (0.5, 0.5, 0.5)
SMALL = dict(img_size=32, patch_size=8, embed_dim=24, num_heads=2, num_classes=4)


def vit(**options):
    return timm.create_model("vit_tiny_patch16_224", **SMALL, **options)


@pytest.mark.parametrize("depth", [1, 3])
def test_blocks_of_a_transformer_are_those_of_its_list(depth):
    model = vit(depth=depth)
    assert blocks(model) == list(model.blocks)
    assert blocks(OnPixels(model, HALF, HALF)) == list(model.blocks)  # inside another module


def test_rpc_attention_changes_no_block():
    model = vit(depth=2)
    before = blocks(model)
    pa.robustify(model, pursuit=pa.Pursuit(2, 1.0, "cleaned"))
    assert blocks(model) == before


def test_blocks_of_a_model_of_transformers():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=32, patch_size=8, hidden_size=24, num_hidden_layers=3, num_attention_heads=2)
    model = ViTForImageClassification(config)
    found = blocks(model)
    assert len(found) == 3
    with Features.of(model, model.config.num_labels).kept() as features:
        made = model(torch.rand(2, 3, 32, 32), output_hidden_states=True)
    torch.testing.assert_close(features[0], made.hidden_states[2])  # the first state is that before all blocks
    torch.testing.assert_close(model.classifier(features[1]), made.logits)


def test_blocks_of_a_network_without_attention_are_its_stages():
    model = timm.create_model("resnet10t", num_classes=4)
    assert blocks(model)[-4:] == [model.layer1, model.layer2, model.layer3, model.layer4]
    with pytest.raises(InputError, match="no blocks"):
        blocks(nn.ReLU())


def test_features_are_kept_inside_the_context_only():
    model, images = vit(depth=3).eval(), torch.rand(2, 3, 32, 32)
    with Features.of(model, 4, block=1).kept() as features:
        logits = model(images)
    model(images)
    assert len(features) == 2
    assert features[0].equal(model.blocks[0](model._pos_embed(model.patch_embed(images))))
    assert model.head(features[1]).equal(logits)


def test_the_default_block_is_the_last_but_one():
    model = vit(depth=3)
    assert Features.of(model, 4).block is model.blocks[1]
    assert Features.of(vit(depth=1), 4).last is not None
    with pytest.raises(InputError, match=r"features.block is 4; expected at most 3"):
        Features.of(model, 4, block=4)


def test_later_blocks_and_the_classifier_are_frozen():
    model = vit(depth=3)
    freeze_after(model, 0.5)  # of 3 blocks, rounded up: 2
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"} <= trained
    assert any(name.startswith("blocks.1.") for name in trained)
    assert not any(name.startswith(("blocks.2.", "norm", "head")) for name in trained)


def test_the_share_of_blocks_is_exact():
    model = vit(depth=10)
    freeze_after(model, 0.7)
    assert [any(p.requires_grad for p in each.parameters()) for each in model.blocks] == [True] * 7 + [False] * 3
