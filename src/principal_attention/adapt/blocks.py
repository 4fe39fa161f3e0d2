"""Blocks of a network in order, the tokens after them, and the parameters up to one of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

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


@contextmanager
def output_of(module: nn.Module | None) -> Iterator[list[Tensor]]:
    """Context that yields a list to which every call of a module appends its output, the first one if it has several.
    The list stays empty if there is no module."""
    found: list[Tensor] = []

    def keep(called: nn.Module, given: Any, output: Any) -> None:
        found.append(output if isinstance(output, Tensor) else output[0])

    if module is None:
        yield found
        return
    handle = module.register_forward_hook(keep)
    try:
        yield found
    finally:
        handle.remove()


def freeze_after(model: nn.Module, count: int) -> None:
    """Freeze all parameters but those of the first `count` blocks and those before them, such as the patch
    embedding's."""
    last = {id(each) for each in blocks(model)[count - 1].parameters()}
    ordered = list(model.parameters())
    end = max(place for place, each in enumerate(ordered) if id(each) in last)
    for each in ordered[end + 1 :]:
        each.requires_grad_(False)
