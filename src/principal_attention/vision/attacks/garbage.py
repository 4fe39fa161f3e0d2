"""Patches made without the model: noise, stripes and a piece of another image."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...plumbing.seeds import words
from .frozen import frozen
from .patches import CLEAR, gap_of
from .places import check_patch, cut, paste

GARBAGE = ("noise", "stripes", "piece")


def stripes(channels: int, size: int, generator: torch.Generator) -> Tensor:
    """Stripes (C, size, size) of two random colours, in a random direction, 2 to size/2 pixels wide."""
    angle, width, phase = torch.rand(3, generator=generator).tolist()
    colours = torch.rand(2, channels, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = rows * math.sin(math.pi * angle) + columns * math.cos(math.pi * angle)
    period = 2 + width * max(0.0, size / 2 - 2)
    second = ((along / period + 2 * phase).floor() % 2).long()
    return colours[second].permute(2, 0, 1)


def garbage_patches(kind: str, images: Tensor, others: Tensor, size: int, *, indices: Sequence[int], seed: int,
                    draw: int = 0) -> Tensor:  # fmt: skip
    """One patch per image (B, C, size, size), which depends only on the seed, the image's index and `draw`.

    `others`: for each image another image, from which `piece` cuts a random square.
    """
    channels, height, width = images.shape[1:]
    made = []
    for index, other in zip(indices, others, strict=True):
        generator = torch.Generator().manual_seed(words("patch", seed, index, draw, GARBAGE.index(kind))[0])
        if kind == "noise":
            made.append(torch.rand(channels, size, size, generator=generator))
        elif kind == "stripes":
            made.append(stripes(channels, size, generator))
        else:
            limits = torch.tensor([height - size + 1, width - size + 1])
            corner = (torch.rand(2, generator=generator) * limits).long()
            made.append(cut(other[None], corner[None].to(other.device), size)[0].cpu())
    return torch.stack(made).to(images)


@torch.no_grad()
def worst_of(
    model: nn.Module, images: Tensor, labels: Tensor, corners: Tensor, candidates: Sequence[tuple[str, Tensor]]
) -> tuple[Tensor, list[str], Tensor]:
    """The candidate and place with the largest gap: images, names of the candidates, and corners (B, 2).

    `candidates`: names, and patches of one per image. `corners`: places (B, K, 2). An image that is misclassified at
    one place with one candidate is not tried again.
    """
    for _, patches in candidates:
        check_patch(patches.shape[-1], *images.shape[-2:])
    worst, at = images.clone(), corners[:, 0].clone()
    gap = images.new_full((len(images),), -math.inf, dtype=torch.float32)
    names = [""] * len(images)
    with frozen(model):
        for name, patches in candidates:
            for places in corners.unbind(1):
                left = (gap <= CLEAR).nonzero().flatten()
                if not len(left):
                    break
                changed = paste(images[left], patches[left], places[left])
                found = gap_of(model(changed), labels[left])
                better = found > gap[left]
                here = left[better]
                worst[here], gap[here], at[here] = changed[better], found[better], places[here]
                for each in here.tolist():
                    names[each] = name
    return worst, names, at
