"""Vision transformers without some of their patch tokens, exactly: removed tokens leave the sequence.

What a removed token's pixels hold then has no effect on the answer, which painting the pixels over does not achieve
without a colour that the model was not trained on.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError

EXPECTED = "expected timm's VisionTransformer, or ViT or DeiT of transformers"
SEVERAL = (
    "{} makes its tokens with more than one layer, so that a pixel can belong to several tokens; expected one "
    "convolution into patches"
)


@dataclass(frozen=True)
class TokenGrid:
    """Patch tokens of a vision transformer: row by row, after `prefix` tokens without a place in the image."""

    rows: int
    columns: int
    height: int  # of one token's patch, in pixels
    width: int
    image: tuple[int, int]  # height and width of the images
    channels: int
    prefix: int  # class, distillation and register tokens
    module: nn.Module  # the whole sequence is its input (`before`) or its output
    before: bool

    def __len__(self) -> int:
        return self.rows * self.columns


def token_grid(network: nn.Module) -> TokenGrid:
    """Patch tokens of the one vision transformer in `network`, which may wrap it, for example to normalise images."""
    found = [grid for each in network.modules() if (grid := _timm(each) or _transformers(each)) is not None]
    if len(found) != 1:
        many = f"holds {len(found)} vision transformers" if found else "is no vision transformer of a known class"
        raise InputError(f"{type(network).__name__} {many}; {EXPECTED}")
    return found[0]


def _timm(module: Any) -> TokenGrid | None:
    library = sys.modules.get("timm.models.vision_transformer")  # timm is imported if the model is one of timm's
    if library is None or not isinstance(module, library.VisionTransformer):
        return None
    stem = module.patch_embed
    height, width = _patches(module, getattr(stem, "proj", None))
    grid, image = getattr(stem, "grid_size", None), getattr(stem, "img_size", None)
    if grid is None or image is None:
        raise InputError(f"{type(module).__name__} has no fixed image size; expected a model created with img_size")
    if (image[0] // height, image[1] // width) != tuple(grid):
        raise InputError(SEVERAL.format(type(module).__name__))  # a network that ends in a patch embedding
    channels, prefix = stem.proj.in_channels, module.num_prefix_tokens
    return TokenGrid(grid[0], grid[1], height, width, tuple(image), channels, prefix, module.patch_drop, before=True)


def _transformers(module: Any) -> TokenGrid | None:
    if getattr(getattr(module, "config", None), "model_type", None) not in ("vit", "deit"):
        return None
    stem = getattr(module, "embeddings", None)
    if stem is None or not hasattr(stem, "position_embeddings"):
        return None
    projection = stem.patch_embeddings.projection
    height, width = _patches(module, projection)
    image = stem.patch_embeddings.image_size
    rows, columns = image[0] // height, image[1] // width
    prefix = stem.position_embeddings.shape[1] - rows * columns
    return TokenGrid(rows, columns, height, width, tuple(image), projection.in_channels, prefix, stem, before=False)


def _patches(module: nn.Module, projection: Any) -> tuple[int, int]:
    """Size of the patches in pixels; raises unless every pixel belongs to one token only."""
    if not isinstance(projection, nn.Conv2d):
        raise InputError(SEVERAL.format(type(module).__name__))
    size, stride = projection.kernel_size, projection.stride
    plain = set(projection.padding) == {0} and set(projection.dilation) == {1}
    if size != stride or not plain:
        raise InputError(f"the patches of {type(module).__name__} overlap: they have size {size} and stride {stride}; "
                         "expected the same size and stride, without padding or dilation")  # fmt: skip
    return size[0], size[1]


@contextmanager
def keeping(network: nn.Module, positions: Tensor, *, rows: Tensor | None = None) -> Iterator[None]:
    """Context in which the network computes with these patch tokens alone, in training and evaluation, with gradients.

    Position embeddings are added before tokens are removed, and class and distillation tokens always stay.

    Args:
        positions: patch tokens to keep, numbered row by row from 0: (K,) for all images, or (B, K).
        rows: (B,) for each row of `positions`, the index of its image in the batch, so that an image with several
            sets of positions is embedded once. The output then has B rows. Default: the images in order.

    Example:
        with keeping(model, torch.arange(100)):
            logits = model(images)
    """
    grid = token_grid(network)
    _check_positions(positions, rows, len(grid))

    def gather(tokens: Tensor) -> Tensor:
        if tokens.shape[1] != grid.prefix + len(grid):
            raise InputError(f"there are {tokens.shape[1]} tokens to choose from; expected {grid.prefix + len(grid)}: "
                             f"images of {grid.image[0]}×{grid.image[1]}, and one removal at a time")  # fmt: skip
        return _gathered(tokens, positions.to(tokens.device), rows, grid.prefix)

    if grid.before:
        handle = grid.module.register_forward_pre_hook(lambda _, given: (gather(given[0]), *given[1:]))
    else:
        handle = grid.module.register_forward_hook(lambda *called: gather(called[2]))
    try:
        yield
    finally:
        handle.remove()


def _check_positions(positions: Tensor, rows: Tensor | None, count: int) -> None:
    if positions.dtype != torch.long or positions.ndim not in (1, 2):
        raise InputError(f"positions are {positions.dtype} of shape {tuple(positions.shape)}; expected int64 of shape "
                         "(K,) or (B, K)")  # fmt: skip
    if positions.shape[-1] == 0:
        raise InputError("positions are empty; expected at least one patch token to keep")
    if rows is not None and (positions.ndim != 2 or rows.shape != positions.shape[:1]):
        raise InputError(f"rows have shape {tuple(rows.shape)} and positions {tuple(positions.shape)}; expected (B,) "
                         "and (B, K)")  # fmt: skip
    if not positions.numel():
        return
    ordered = positions.sort(-1).values
    if ordered.min() < 0 or ordered.max() >= count:
        raise InputError(f"positions run from {int(ordered.min())} to {int(ordered.max())}; the model has patch tokens "
                         f"0 to {count - 1}")  # fmt: skip
    if bool((ordered.diff() == 0).any()):
        raise InputError("a position occurs twice in a row of positions; expected each at most once")


def _gathered(tokens: Tensor, positions: Tensor, rows: Tensor | None, prefix: int) -> Tensor:
    """Prefix and kept patch tokens (B, prefix + K, D) of `tokens` (images, prefix + N, D)."""
    first = torch.arange(prefix, device=tokens.device)
    index = torch.cat([first.expand(*positions.shape[:-1], prefix), positions + prefix], -1)
    if index.ndim == 1:
        return tokens.index_select(1, index)
    if rows is not None:
        return tokens[rows.to(tokens.device)[:, None], index]
    if len(index) != len(tokens):
        raise InputError(f"positions have {len(index)} rows and the batch has {len(tokens)} images; expected the same")
    return tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[-1]))
