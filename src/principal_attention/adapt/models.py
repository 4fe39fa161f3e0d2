"""`robustify` and `restore`: find a model's attention modules, and put RPC-Attention into the chosen ones."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn

from ..errors import DtypeError, InputError
from ..modules import SelfAttention
from ..pursuit import Pursuit
from . import multihead, notes
from .choice import Choice, Layers
from .ours import HoldsMechanism
from .registry import calls, is_known
from .robust import CallsSDPA, Robust, mixed_in, swap, swap_back

Model = TypeVar("Model", bound=nn.Module)
Found = list[tuple[nn.Module, type[Robust]]]  # a model's attention modules in order, each with its `Robust` mixin


def robustify(
    model: Model,
    *,
    pursuit: Pursuit | Mapping[int, Pursuit] | None = None,
    layers: Layers = "first",
    form: str = "auto",
) -> Model:
    """Put RPC-Attention into a model, in place, and return the model. Weights and their names do not change.

    Args:
        model: module with attention of timm, transformers, torch.nn, this package, or a class given to `register`.
        pursuit: settings for all chosen layers, or settings by layer, as in `{0: Pursuit(6), 3: Pursuit(2)}`.
            Default: the settings recorded in the model's config.
        layers: "first" (default), "all", or indices from 0 in the order of the model's attention modules.
        form: "query" keeps the model's queries, "symmetric" uses the cleaned keys as queries. "auto" (default) is
            "query", or "symmetric" for attention without queries.

    A second call replaces the settings of the first. The model is unchanged if an error is raised.
    """
    found = _find(model)
    if not found:
        raise InputError(_nothing_found(model))
    if pursuit is not None:
        choice = Choice.of(pursuit, layers, form, len(found))
    else:
        choice = Choice.from_json(_recorded(model, found), len(found))
    chosen = {index: found[index] for index in choice.pursuits}
    for module, kind in chosen.values():
        kind.refuse(module)
        if form == "query" and not kind.has_queries(module):
            raise InputError("form is 'query', but the model's attention has no queries; use 'auto' or 'symmetric'")
    theirs, modules = huggingface(), [module for module, _ in found]
    if theirs is not None:
        theirs.owned(model, modules)
    restore(model)
    for index, (module, kind) in chosen.items():
        own_form = choice.form if kind.has_queries(module) else "symmetric"
        swap(module, kind, rpc_pursuit=choice.pursuits[index], rpc_form=own_form)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(isinstance(m, Robust) for m in module.modules()):
            swap(module, multihead.Padded)
    notes.write(model, choice)
    if theirs is not None:
        theirs.record(model, modules)
    return model


def restore(model: Model) -> Model:
    """Undo `robustify`, in place, and return the model; its outputs are bitwise those before `robustify`."""
    modules = attention_modules(model)
    if (theirs := huggingface()) is not None:
        theirs.erase(model, modules)
    for module in model.modules():
        swap_back(module)
    notes.write(model, None)
    return model


def huggingface() -> Any:
    """The module `adapt.huggingface`; None if transformers is not imported or has no `AttentionInterface`."""
    if "transformers.modeling_utils" not in sys.modules:
        return None
    try:
        from . import huggingface as theirs
    except ImportError:
        return None
    theirs.register()
    return theirs


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Attention modules of a model in the order in which `robustify` numbers them as layers."""
    return [module for module, _ in _find(model)]


def _find(model: nn.Module) -> Found:
    if not isinstance(model, nn.Module):
        raise DtypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    crossing = {id(m.multihead_attn) for m in model.modules() if isinstance(m, nn.TransformerDecoderLayer)}
    found = [(module, _kind(module)) for module in model.modules() if id(module) not in crossing]
    return [(module, kind) for module, kind in found if kind is not None]


def _kind(module: nn.Module) -> type[Robust] | None:
    if isinstance(module, Robust):
        return mixed_in(module)
    if is_known(module):
        theirs = huggingface()
        if theirs is None or not calls(type(module), "ALL_ATTENTION_FUNCTIONS"):
            return CallsSDPA
        return theirs.CallsInterface if not getattr(module, "is_cross_attention", False) else None
    if multihead.takes(module):
        return multihead.Multihead
    return HoldsMechanism if isinstance(module, SelfAttention) else None


def _recorded(model: nn.Module, found: Found) -> Any:
    choice = notes.read(model)
    if choice is None and (theirs := huggingface()) is not None:
        choice = theirs.recorded(model, [module for module, _ in found])
    if choice is None:
        raise InputError(
            "no pursuit was given and the model's config records none; pass one, as in pursuit=pa.Pursuit()"
        )
    return choice


def _nothing_found(model: nn.Module) -> str:
    """Error message that names modules of the model that may be attention, and how to use them."""
    classes = Counter(type(m) for m in model.modules())
    ways = ("scaled_dot_product_attention", "ALL_ATTENTION_FUNCTIONS")
    able = [c for c in classes if any(calls(c, way) for way in ways)]
    named = [c for c in classes if "attention" in c.__name__.lower() or "attn" in c.__name__.lower()]
    some = ", ".join(f"{classes[c]} × {c.__module__}.{c.__qualname__}" for c in (able or named)[:4])
    text = f"{type(model).__name__} holds no attention that robustify knows"
    if able:
        return (
            f"{text}, but {some}: if it attends once per forward, within one sequence, call "
            f"principal_attention.adapt.register({able[0].__name__}) first"
        )
    how = "write pa.rpc_attention(k, v, q=q, pursuit=…) in place of softmax(q kᵀ) v"
    return f"{text}, but {some}: {how}" if some else f"{text} nor any module that looks like attention: {how}"
