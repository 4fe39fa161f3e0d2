"""`robustify` and `restore`: find a model's attention modules, and put RPC-Attention into the chosen ones."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn

from ..errors import DtypeError, InputError
from ..modules import SelfAttention
from ..pursuit import Pursuit
from . import notes
from .choice import Choice, Layers
from .multihead import Multihead, Padded
from .ours import HoldsMechanism
from .swap import CallsSDPA, Robust, names_in_forward, swap, swap_back

Model = TypeVar("Model", bound=nn.Module)

# By name, so that timm need not be installed. Each calls scaled_dot_product_attention once on one sequence.
_TIMM = {
    "timm.layers.attention.Attention",
    "timm.layers.attention.AttentionRope",
    "timm.models.beit.Attention",
    "timm.models.eva.EvaAttention",
    "timm.models.vision_transformer.ParallelScalingBlock",
    "timm.models.vision_transformer_relpos.RelPosAttention",
}
_REGISTERED: set[type[nn.Module]] = set()


def robustify(
    model: Model,
    *,
    pursuit: Pursuit | Mapping[int, Pursuit] | None = None,
    layers: Layers = "first",
    form: str = "auto",
) -> Model:
    """Put RPC-Attention into a model, in place, and return it; its weights and their names stay as they are.

    Args:
        model: anything that holds attention of timm, transformers, torch.nn or this package, or a registered class.
        pursuit: one for all chosen layers, or one a layer as `{0: Pursuit(6), 3: Pursuit(2)}`; without it, the choice
            that the model's config records.
        layers: "first", "all", or indices from 0 in the order of the model's attention modules.
        form: "query" leaves the queries as they are, "symmetric" lets the cleaned keys stand for them; "auto" is
            "query", and "symmetric" for a model without queries.

    A second call replaces the first. On an error the model is as it was.
    """
    if not isinstance(model, nn.Module):
        raise DtypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
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
            raise InputError("form is 'query' and the model's attention has no queries; use 'auto' or 'symmetric'")
    restore(model)
    for index, (module, kind) in chosen.items():
        own_form = choice.form if kind.has_queries(module) else "symmetric"
        swap(module, kind, rpc_pursuit=choice.pursuits[index], rpc_form=own_form)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(isinstance(m, Multihead) for m in module.modules()):
            swap(module, Padded)
    notes.write(model, choice)
    if (huggingface := _huggingface()) is not None:
        huggingface.record(_of_transformers(found))
    return model


def restore(model: Model) -> Model:
    """Take RPC-Attention out again: the model computes, bit for bit, what it did before."""
    if (huggingface := _huggingface()) is not None:
        huggingface.erase(_of_transformers(_find(model)))
    for module in model.modules():
        swap_back(module)
    notes.write(model, None)
    return model


def register(*classes: type[nn.Module]) -> None:
    """Let `robustify` find modules of these classes, whose forward calls `scaled_dot_product_attention` once."""
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, nn.Module):
            raise DtypeError(f"{each!r} is not a class of torch.nn.Module; register the class of your attention module")
        _REGISTERED.add(each)


def _find(model: nn.Module) -> list[tuple[nn.Module, type[Robust]]]:
    """The model's attention modules in order, each with the way to put a pursuit into it."""
    crossing = {id(m.multihead_attn) for m in model.modules() if isinstance(m, nn.TransformerDecoderLayer)}
    found = [(module, _kind(module)) for module in model.modules() if id(module) not in crossing]
    return [(module, kind) for module, kind in found if kind is not None]


def _kind(module: nn.Module) -> type[Robust] | None:
    if isinstance(module, Robust):
        return type(module).__bases__[0]
    if any(c in _REGISTERED or f"{c.__module__}.{c.__qualname__}" in _TIMM for c in type(module).__mro__):
        return CallsSDPA
    if isinstance(module, nn.MultiheadAttention):
        return Multihead
    if isinstance(module, SelfAttention):
        return HoldsMechanism
    huggingface = _huggingface()
    return huggingface.CallsInterface if huggingface is not None and huggingface.calls_interface(module) else None


def _huggingface() -> Any:
    """transformers' side, where it is in use at all."""
    if "transformers.modeling_utils" not in sys.modules:
        return None
    from . import huggingface

    huggingface.register()
    return huggingface


def _of_transformers(found: list[tuple[nn.Module, type[Robust]]]) -> list[nn.Module]:
    huggingface = _huggingface()
    return [module for module, kind in found if kind is huggingface.CallsInterface]


def _recorded(model: nn.Module, found: list[tuple[nn.Module, type[Robust]]]) -> Any:
    choice = notes.read(model)
    if choice is None and (huggingface := _huggingface()) is not None:
        choice = huggingface.recorded(_of_transformers(found))
    if choice is None:
        raise InputError(
            "no pursuit was given and the model's config records none: pass pursuit=pa.Pursuit(4, 0.5, 'cleaned')"
        )
    return choice


def _nothing_found(model: nn.Module) -> str:
    """Name what looks like attention, and what to do about it."""
    classes = Counter(type(m) for m in model.modules())
    calling = [c for c in classes if "scaled_dot_product_attention" in names_in_forward(c)]
    named = [c for c in classes if "attention" in c.__name__.lower() or "attn" in c.__name__.lower()]
    some = ", ".join(f"{classes[c]} × {c.__module__}.{c.__qualname__}" for c in (calling or named)[:4])
    text = f"{type(model).__name__} holds no attention that robustify knows"
    if calling:
        return (
            f"{text}, but {some}, which calls scaled_dot_product_attention: run "
            f"principal_attention.adapt.register({calling[0].__name__}) first, if it attends within one sequence"
        )
    how = "write pa.rpc_attention(k, v, q=q, pursuit=…) where softmax(q kᵀ) v is computed"
    return f"{text}, but {some}: {how}" if some else f"{text} nor any module that looks like attention: {how}"
