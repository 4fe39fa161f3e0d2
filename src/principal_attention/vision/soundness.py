"""Check that removed tokens have no effect on a model's answers, by experiment."""

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from .tokens import TokenGrid, keeping


def logits_of(output: Any) -> Tensor:
    """Logits of a model's output: a tensor, or an output of transformers."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        told = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"type {type(output).__name__}"
        raise InputError(f"the model's output has {told}; expected logits of shape (images, classes)")
    return logits


@torch.no_grad()
def check_removal(model: nn.Module, grid: TokenGrid, removed: Tensor) -> None:
    """Raise InputError unless an image's logits without masked tokens are the same, bit for bit, whatever the pixels of
    these tokens and the other images of the batch hold.

    A few masks are tried: the first and last, one in the middle, and a pair.

    Args:
        removed: (masks, tokens) True where a mask removes a token.
    """
    parameter = next(model.parameters())
    random = torch.Generator().manual_seed(0)
    chosen = removed[[0, len(removed) // 2, -1]].cpu()
    for masks in (chosen, chosen[:1] | chosen[-1:]):
        first = torch.rand(len(masks) + 1, grid.channels, *grid.image, generator=random)
        other = torch.rand(first.shape, generator=random)
        other = torch.where(_kept_pixels(masks, grid), first[: len(masks)], 10 * other[: len(masks)])
        kept = (~masks).nonzero()[:, 1].reshape(len(masks), -1)
        # the last image differs between the two batches everywhere; it is not compared
        positions, rows = torch.cat([kept, kept[:1]]), torch.arange(len(masks) + 1)
        found = [
            _answers(model, torch.cat([images, images_of_last]).to(parameter), positions, rows)[:-1]
            for images, images_of_last in ((first[:-1], first[-1:]), (other, 1 - first[-1:]))
        ]
        if not torch.equal(*found):
            raise InputError(
                f"{type(model).__name__} cannot be certified: its answer to an image without some tokens depends on "
                "the pixels of these tokens, on the other images of the batch, or on chance"
            )


def _kept_pixels(masks: Tensor, grid: TokenGrid) -> Tensor:
    """(masks, 1, height, width) True at pixels of tokens that stay, and at pixels of no token."""
    kept = torch.ones(len(masks), 1, *grid.image, dtype=torch.bool)
    blocks = masks.reshape(-1, 1, grid.rows, grid.columns)
    pixels = blocks.repeat_interleave(grid.height, 2).repeat_interleave(grid.width, 3)
    kept[:, :, : pixels.shape[2], : pixels.shape[3]] = ~pixels
    return kept


def _answers(model: nn.Module, images: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
    try:
        with keeping(model, positions.to(images.device), rows=rows.to(images.device)):
            output = model(images)
    except Exception as wrong:  # attention with a weight for each pair of places, for example: any error of the model
        reason = " ".join(str(wrong).split())[:300]
        raise InputError(f"{type(model).__name__} cannot work without some of its tokens: {reason}") from wrong
    logits = logits_of(output)
    if len(logits) != len(positions):
        raise InputError(f"the model gave {len(logits)} answers to {len(positions)} sets of tokens; expected as many")
    return logits
