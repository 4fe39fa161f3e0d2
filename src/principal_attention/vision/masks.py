"""Blocks of tokens that together cover a square of pixels at every place in the image.

A side of p pixels touches at most m = 1 + ⌈(p − 1)/t⌉ consecutive tokens of t pixels. Blocks of w ≥ m tokens that start
every w − m + 1 tokens therefore contain every such run of tokens in one of them, on each axis, and so do their products
in two dimensions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .tokens import TokenGrid

PER_SIDE = 6  # masks along each side, as in PatchCleanser: 36 masks


@dataclass(frozen=True)
class Axis:
    """Blocks of `width` tokens along one side of the image, at `starts`."""

    width: int
    starts: tuple[int, ...]


def cover_axis(tokens: int, size: int, patch: int, most: int = PER_SIDE) -> Axis:
    """Smallest blocks, at most `most` of them, such that one contains all tokens that any `patch` pixels touch.

    Args:
        tokens: number of tokens along the side.
        size: size of a token in pixels.
        patch: size of the patch in pixels.
    """
    touched = 1 + -(-(patch - 1) // size)
    for width in range(touched, tokens):
        last, stride = tokens - width, width - touched + 1
        if 1 + -(-last // stride) <= most:
            return Axis(width, (*range(0, last, stride), last))
    raise InputError(
        f"a patch of {patch} pixels touches up to {touched} of the {tokens} tokens along a side of {tokens * size} "
        f"pixels; expected a smaller patch, of at most {max((tokens - 2) * size + 1, 0)} pixels"
    )


def block_masks(grid: TokenGrid, patch: int, most: int = PER_SIDE) -> Tensor:
    """(masks, tokens) True where a mask removes a token; each mask is one block.

    Two masks never remove everything: a block that is shorter than both sides holds at most one of the four corners.
    """
    check_patch(grid, patch, most)
    down = _inside(grid.rows, cover_axis(grid.rows, grid.height, patch, most))
    across = _inside(grid.columns, cover_axis(grid.columns, grid.width, patch, most))
    return (down[:, None, :, None] & across[None, :, None, :]).reshape(len(down) * len(across), len(grid))


def block_size(grid: TokenGrid, patch: int, most: int = PER_SIDE) -> tuple[int, int]:
    """Rows and columns of tokens in each block."""
    check_patch(grid, patch, most)
    return tuple(  # type: ignore[return-value]
        cover_axis(tokens, size, patch, most).width
        for tokens, size in ((grid.rows, grid.height), (grid.columns, grid.width))
    )


def check_patch(grid: TokenGrid, patch: int, most: int = PER_SIDE) -> None:
    if isinstance(patch, bool) or not isinstance(patch, int) or patch < 1:
        raise InputError(f"patch is {patch!r}; expected a whole number of pixels from 1")
    if patch > min(grid.image):
        raise InputError(f"patch is {patch} and the images have {grid.image[0]}×{grid.image[1]} pixels; expected a "
                         "smaller patch")  # fmt: skip
    if isinstance(most, bool) or not isinstance(most, int) or most < 2:
        raise InputError(f"the number of masks per side is {most!r}; expected a whole number from 2")


def _inside(tokens: int, axis: Axis) -> Tensor:
    """(blocks, tokens) whether a block holds a token."""
    place = torch.arange(tokens)
    starts = torch.tensor(axis.starts)[:, None]
    return (place >= starts) & (place < starts + axis.width)
