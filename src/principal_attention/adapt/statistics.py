"""`TokenStatistics` as buffers of an attention module, which are saved and moved with the model."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..installs.timm import SAVED
from ..pursuit.tokens import TokenStatistics

NAMES = tuple(f"rpc_{field}" for field in TokenStatistics._fields)


def put(module: nn.Module, statistics: TokenStatistics) -> None:
    """Register the statistics as buffers, in the dtype and on the device of the module."""
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    for name, tensor in zip(NAMES, statistics, strict=True):
        module.register_buffer(name, tensor.to(device=like.device, dtype=like.dtype).contiguous())


def put_empty(module: nn.Module, width: int) -> None:
    """Register buffers of the right shapes, to be loaded from a state dict; NaN until then."""
    nan = float("nan")
    shapes = ((width, width), (width,), (), ())
    put(module, TokenStatistics(*(torch.full(shape, nan) for shape in shapes)))


def remove(module: nn.Module) -> None:
    for name in NAMES:
        module._buffers.pop(name, None)
    module.__dict__.pop("rpc_loaded", None)


def width_of(module: nn.Module) -> int | None:
    """Width of the keys that the module has statistics of; None without statistics."""
    whiten = module._buffers.get(NAMES[0])
    return None if whiten is None else whiten.shape[-1]


def statistics_of(module: Any) -> TokenStatistics | None:
    """Statistics of a module; None if it has none. Raises if they were never loaded."""
    if NAMES[0] not in module._buffers:
        return None
    found = TokenStatistics(*(module._buffers[name] for name in NAMES))
    if not module.__dict__.get("rpc_loaded") and not torch.compiler.is_compiling():  # looked at once
        if not _is_whole(found):
            raise InputError(
                "the statistics of token pursuit were not loaded with the model's weights; load its state dict, or "
                "call pa.robustify(model, pursuit=…, calibrate=…)"
            )
        module.rpc_loaded = True
    return found


def _is_whole(found: TokenStatistics) -> bool:
    """Whether these are statistics: neither NaN nor memory that a library left as it was for want of a value."""
    factor = found.whiten
    shape = (factor.diagonal() > 0).all() & (factor.triu(1) == 0).all() & factor.isfinite().all()
    return bool(shape & found.shift.isfinite().all() & (found.median > 0) & (found.threshold > 0))


def held(modules: Iterable[nn.Module]) -> dict[int, TokenStatistics]:
    """Statistics in the modules, by their position."""
    kept: dict[int, TokenStatistics] = {}
    for index, module in enumerate(modules):
        if width_of(module) is not None:
            kept[index] = TokenStatistics(*(_tensor(module, name) for name in NAMES))
    return kept


def saved(model: nn.Module, modules: Iterable[nn.Module]) -> dict[int, TokenStatistics]:
    """Statistics that timm found in a saved model and could not load into the plain one, by position of the module."""
    found: Mapping[str, Tensor] = model.__dict__.get(SAVED) or {}
    names = {id(module): name for name, module in model.named_modules()}
    kept: dict[int, TokenStatistics] = {}
    for index, module in enumerate(modules):
        keys = [f"{names[id(module)]}.{name}" for name in NAMES]
        if all(key in found for key in keys):
            kept[index] = TokenStatistics(*(found[key] for key in keys))
    return kept


def copy_statistics(source: nn.Module, target: nn.Module) -> None:
    """Copy statistics between two models of the same structure."""
    for module, other in zip(source.modules(), target.modules(), strict=True):
        if width_of(module) is not None:
            put(other, TokenStatistics(*(_tensor(module, name) for name in NAMES)))


def _tensor(module: nn.Module, name: str) -> Tensor:
    found = module._buffers[name]
    assert found is not None
    return found
