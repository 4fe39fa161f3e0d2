"""Random removal of blocks of tokens in training."""

import pytest
import timm
import torch

from principal_attention.errors import InputError
from principal_attention.vision import removal
from principal_attention.vision.removal import random_removal


@pytest.fixture
def network():
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", img_size=64, patch_size=8, embed_dim=24, depth=2, num_heads=2)


@pytest.fixture
def drawn(monkeypatch, network):
    """drawn(count, **options): positions that `random_removal` keeps."""
    seen = []
    monkeypatch.setattr(removal, "keeping", lambda _, positions: seen.append(positions))

    def draw(count, **options):
        random_removal(network, **options)(count)
        return seen[-1]

    return draw


def test_each_image_loses_whole_blocks_of_the_certificates_size(drawn):
    kept = drawn(200, patch=16, blocks=1)  # 16 pixels touch up to 3 of 8 tokens: blocks of 3×3 at 6 places a side
    assert kept.shape == (200, 64 - 9)
    tops = set()
    for row in kept:
        lost = torch.ones(8, 8).bool()
        lost.view(-1)[row] = False
        where = lost.nonzero()
        low, high = where.amin(0), where.amax(0)
        assert (high - low + 1).tolist() == [3, 3]
        tops.add(tuple(low.tolist()))
    assert len(tops) > 30  # of 36 places, in 200 draws


def test_images_whose_blocks_overlap_lose_further_tokens(drawn):
    kept = drawn(100, patch=16, blocks=2)
    assert kept.shape[1] == 64 - 18  # in 100 draws some blocks are disjoint
    assert all(len(set(row.tolist())) == len(row) for row in kept)


def test_the_network_computes_with_fewer_tokens_and_gradients_reach_its_weights(network):
    lengths = []
    network.blocks[0].register_forward_hook(lambda _, given, out: lengths.append(given[0].shape[1]))
    torch.manual_seed(0)
    with random_removal(network, patch=16, blocks=1)(5):
        network(torch.rand(5, 3, 64, 64)).sum().backward()
    assert lengths == [1 + 64 - 9]
    assert network.patch_embed.proj.weight.grad.abs().sum() > 0


def test_blocks_that_leave_nothing_are_refused(network):
    with pytest.raises(InputError, match="8 blocks of 3×3 tokens would leave nothing"):
        random_removal(network, patch=16, blocks=8)
