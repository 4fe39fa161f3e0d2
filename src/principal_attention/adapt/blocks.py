"""Blocks of a network in order, features inside it, and the parameters up to a block."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import InputError
from .models import attention_modules


def blocks(model: nn.Module) -> list[nn.Module]:
    """Blocks of a model in their order: for a transformer, the elements of its lists of layers that hold one attention
    module each; for other networks, the children that have parameters, without the last, which classifies."""
    attention = {id(module) for module in attention_modules(model)}
    found = list(_holding(model, attention)) if attention else _children(model)
    if not found:
        raise InputError(f"{type(model).__name__} has no blocks that could be told apart")
    return found


def _holding(module: nn.Module, attention: set[int], *, listed: bool = False) -> Iterator[nn.Module]:
    """The outermost modules that hold exactly one attention module and are elements of a list."""
    count = sum(id(each) in attention for each in module.modules())
    if not count:
        return
    if listed and count == 1:
        yield module
        return
    for child in module.children():
        yield from _holding(child, attention, listed=isinstance(module, nn.ModuleList | nn.Sequential))


def _children(module: nn.Module) -> list[nn.Module]:
    """Children with parameters without the last, of the outermost module that has more than one."""
    found = [child for child in module.children() if next(child.parameters(), None) is not None]
    return _children(found[0]) if len(found) == 1 else found[:-1]


@dataclass(frozen=True)
class Features:
    """Two places of a classifier: the tokens after one of its blocks, and the input of its last layer."""

    block: nn.Module
    last: nn.Module | None  # None if no linear layer has as many outputs as there are classes

    @classmethod
    def of(cls, model: nn.Module, num_classes: int, block: int | None = None) -> "Features":
        """`block` counts from 1. Default: the last but one."""
        found = blocks(model)
        if block is not None and block > len(found):
            raise InputError(f"features.block is {block}; expected at most {len(found)}, the number of blocks")
        linear = [each for each in model.modules() if isinstance(each, nn.Linear) and each.out_features == num_classes]
        return cls(found[(block or max(1, len(found) - 1)) - 1], linear[-1] if linear else None)

    @contextmanager
    def kept(self) -> Iterator[list[Tensor]]:
        """Context that yields a list, to which a call of the model appends what it computes at both places."""
        found: list[Tensor] = []

        def keep(module: nn.Module, given: Any, output: Any) -> None:
            found.append(output if isinstance(output, Tensor) else output[0])

        handles = [self.block.register_forward_hook(keep)]
        if self.last is not None:
            handles.append(self.last.register_forward_hook(lambda _, given, output: found.append(given[0])))
        try:
            yield found
        finally:
            for handle in handles:
                handle.remove()


def freeze_after(model: nn.Module, share: float) -> list[nn.Module]:
    """Freeze all parameters but those of the first blocks, a share of them rounded up, and those before them, such as
    the patch embedding's. Returns the frozen batch norms, which keep their statistics only in evaluation mode."""
    found = blocks(model)
    count = math.ceil(round(share * len(found), 6))  # 0.7 × 10 is more than 7 in floating point
    last = {id(each) for each in found[count - 1].parameters()}
    ordered = list(model.parameters())
    end = max(place for place, each in enumerate(ordered) if id(each) in last)
    for each in ordered[end + 1 :]:
        each.requires_grad_(False)
    return [each for each in model.modules()
            if isinstance(each, _BatchNorm) and not any(p.requires_grad for p in each.parameters())]  # fmt: skip
