"""Places of a square patch: the row and column of its upper left pixel."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import InputError
from ...plumbing.seeds import words


def check_patch(size: int, height: int, width: int) -> None:
    if not 1 <= size <= min(height, width):
        raise InputError(f"the patch has a side of {size} pixels; expected 1 to {min(height, width)}, the image's side")


def random_places(size: int, height: int, width: int, *, indices: Sequence[int], seed: int, count: int = 1) -> Tensor:
    """`count` random places per image (B, count, 2). They depend only on the seed, the image's index and the sizes;
    the first n of a larger count are those of n."""
    check_patch(size, height, width)
    found = [words("place", seed, index, place) for index in indices for place in range(count)]
    limits = torch.tensor([height - size + 1, width - size + 1])
    return (torch.tensor(found, dtype=torch.int64).reshape(len(indices), count, 2) % limits).contiguous()


def fixed_place(size: int, height: int, width: int, corner: tuple[int, int], *, images: int) -> Tensor:
    """One place for all images (B, 1, 2)."""
    check_patch(size, height, width)
    row, column = corner
    if not (0 <= row <= height - size and 0 <= column <= width - size):
        raise InputError(
            f"the corner of the patch is {row},{column}; expected 0,0 to {height - size},{width - size}, so that "
            f"{size}×{size} pixels fit into {height}×{width}"
        )
    return torch.tensor([row, column]).expand(images, 1, 2).contiguous()


def _where(corners: Tensor, size: int) -> tuple[Tensor, slice, Tensor, Tensor]:
    """Index of the pixels of each image's patch; the indexed values have the shape (B, size, size, C)."""
    side = torch.arange(size, device=corners.device)
    rows, columns = corners[:, 0, None] + side, corners[:, 1, None] + side
    image = torch.arange(len(corners), device=corners.device)
    return image[:, None, None], slice(None), rows[:, :, None], columns[:, None, :]


def cut(images: Tensor, corners: Tensor, size: int) -> Tensor:
    """Squares (B, C, size, size) of images (B, C, H, W) at corners (B, 2)."""
    return images[_where(corners, size)].permute(0, 3, 1, 2)


def paste(images: Tensor, patches: Tensor, corners: Tensor) -> Tensor:
    """Copy of images (B, C, H, W) with patches (B, C, size, size) at corners (B, 2); other pixels are unchanged."""
    pasted = images.clone()
    pasted[_where(corners, patches.shape[-1])] = patches.permute(0, 2, 3, 1)
    return pasted
