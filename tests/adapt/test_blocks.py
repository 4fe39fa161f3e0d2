"""Blocks of networks: their number and order, their outputs, and what stays trainable."""

import pytest
import timm
import torch
from torch import nn

import principal_attention as pa
from principal_attention.adapt.blocks import blocks, freeze_after, output_of
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
    with output_of(found[1]) as tokens:
        states = model(torch.rand(2, 3, 32, 32), output_hidden_states=True).hidden_states
    torch.testing.assert_close(tokens[0], states[2])  # the first state is that before all blocks


def test_blocks_of_a_network_without_attention_are_its_stages():
    model = timm.create_model("resnet10t", num_classes=4)
    assert blocks(model)[-4:] == [model.layer1, model.layer2, model.layer3, model.layer4]
    with pytest.raises(InputError, match="no blocks"):
        blocks(nn.ReLU())


def test_outputs_are_kept_inside_the_context_only():
    model, images = vit(depth=2).eval(), torch.rand(2, 3, 32, 32)
    with output_of(model.blocks[0]) as first:
        model(images)
        model(images)
    model(images)
    assert len(first) == 2
    assert first[0].equal(model.blocks[0](model._pos_embed(model.patch_embed(images))))
    with output_of(None) as nothing:
        model(images)
    assert nothing == []


def test_later_blocks_and_the_classifier_are_frozen():
    model = vit(depth=3)
    freeze_after(model, 2)
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"} <= trained
    assert any(name.startswith("blocks.1.") for name in trained)
    assert not any(name.startswith(("blocks.2.", "norm", "head")) for name in trained)
