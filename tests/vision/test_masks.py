"""Masks cover every place of a patch: counted pixel by pixel."""

import pytest
import torch

from principal_attention import InputError
from principal_attention.vision.masks import block_masks, block_size
from principal_attention.vision.tokens import TokenGrid


def grid_of(rows, columns, height, width, more=0):
    image = (rows * height + more, columns * width + more)
    return TokenGrid(rows, columns, height, width, image, 3, 1, torch.nn.Identity(), True)


def touched(grid, top, left, patch):
    """(tokens,) whether any pixel of the square belongs to a token; pixels beyond the last token belong to none."""
    pixels = torch.zeros(grid.image, dtype=torch.bool)
    pixels[top : top + patch, left : left + patch] = True
    own = pixels.unfold(0, grid.height, grid.height).unfold(1, grid.width, grid.width)
    return own.flatten(2).any(-1).flatten()


@pytest.mark.parametrize("patch", [1, 2, 4, 5, 7, 8, 9, 16])
@pytest.mark.parametrize("grid", [grid_of(7, 7, 4, 4), grid_of(6, 9, 4, 3), grid_of(7, 7, 4, 4, more=3)])
@pytest.mark.parametrize("most", [2, 6])
def test_one_mask_covers_a_patch_at_every_pixel_offset(grid, patch, most):
    masks = block_masks(grid, patch, most)
    assert len(masks) <= most**2
    for top in range(grid.image[0] - patch + 1):
        for left in range(grid.image[1] - patch + 1):
            hit = touched(grid, top, left, patch)
            assert (masks | ~hit).all(1).any(), (top, left)


def test_a_smaller_block_would_leave_a_place_uncovered_or_need_more_masks():
    grid = grid_of(7, 7, 4, 4)
    rows, columns = block_size(grid, 5, 4)
    assert (rows, columns) == (3, 3)  # 5 pixels touch 2 tokens; blocks of 2 would need 6 masks a side
    assert len(block_masks(grid, 5, 4)) == 9  # at 0, 2 and 4
    assert block_size(grid, 5, 6) == (2, 2)


def test_the_default_is_the_one_of_the_literature():
    """224×224 images with tokens of 16 pixels, a patch of 32: 36 masks of 4×4 tokens at stride 2."""
    grid = grid_of(14, 14, 16, 16)
    masks = block_masks(grid, 32).reshape(-1, 14, 14)
    assert masks.shape[0] == 36
    corners = [tuple(mask.nonzero()[0].tolist()) for mask in masks]
    assert corners == [(row, column) for row in range(0, 12, 2) for column in range(0, 12, 2)]
    assert all(int(mask.sum()) == 16 for mask in masks)


def test_two_masks_always_leave_tokens():
    for patch in (1, 5, 9, 13, 17, 21):
        masks = block_masks(grid_of(7, 7, 4, 4), patch, 2)
        assert not (masks[:, None] | masks[None]).all(-1).any()


@pytest.mark.parametrize(
    ("patch", "most", "sentence"),
    [
        (0, 6, "patch is 0; expected a whole number of pixels from 1"),
        (-3, 6, "patch is -3"),
        (2.5, 6, "patch is 2.5"),
        (True, 6, "patch is True"),
        (29, 6, "patch is 29 and the images have 28×28 pixels"),
        (28, 6, "touches up to 8 of the 7 tokens .* of at most 21 pixels"),
        (22, 6, "touches up to 7 of the 7 tokens"),
        (8, 1, "masks per side is 1; expected a whole number from 2"),
    ],
)
def test_patches_that_no_masks_cover_are_refused(patch, most, sentence):
    with pytest.raises(InputError, match=sentence):
        block_masks(grid_of(7, 7, 4, 4), patch, most)
