"""Random removal of blocks of tokens in training, for models that are certified without blocks of tokens."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from ..errors import InputError
from .masks import block_size
from .tokens import keeping, token_grid


def random_removal(network: nn.Module, *, patch: int, blocks: int) -> Callable[[int], AbstractContextManager[None]]:
    """Function from a number of images to a context in which the network sees each image without `blocks` random blocks
    of tokens. Blocks have the size that the certificate against patches of `patch` pixels removes.

    Random numbers come from torch's global generator. Blocks of an image may overlap; so that all images keep equally
    many tokens, images that would keep more lose further random tokens.
    """
    grid = token_grid(network)
    down, across = block_size(grid, patch)
    if blocks * down * across >= len(grid):
        raise InputError(
            f"{blocks} blocks of {down}×{across} tokens would leave nothing of {grid.rows}×{grid.columns} tokens; "
            "expected fewer blocks or a smaller patch"
        )

    def draw(count: int) -> Tensor:
        top = torch.randint(grid.rows - down + 1, (count, blocks, 1))
        left = torch.randint(grid.columns - across + 1, (count, blocks, 1))
        rows, columns = torch.arange(grid.rows), torch.arange(grid.columns)
        inside_rows = (rows >= top) & (rows < top + down)  # (count, blocks, rows)
        inside_columns = (columns >= left) & (columns < left + across)
        removed = (inside_rows[..., None] & inside_columns[..., None, :]).any(1).flatten(1)  # (count, tokens)
        kept = len(grid) - int(removed.sum(1).max())
        order = (torch.rand(count, len(grid)) + removed).argsort(1)  # tokens that stay come first, in random order
        return order[:, :kept].sort(1).values

    return lambda count: keeping(network, draw(count))
