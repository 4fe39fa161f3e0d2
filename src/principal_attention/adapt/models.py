"""`robustify` and `restore`: find a model's attention modules, and change the attention of the chosen ones."""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from ..errors import DtypeError, InputError
from ..installs.timm import SAVED
from ..modules import SelfAttention
from ..pursuit.tokens import TokenStatistics
from . import multihead, notes, statistics
from .calibration import calibrate as collect
from .choice import Choice, Layers, Setting
from .ours import HoldsMechanism
from .put import Found, held_choice, put_in, settings_of
from .registry import calls, is_known
from .robust import CallsSDPA, Robust, mixed_in, swap, swap_back

Model = TypeVar("Model", bound=nn.Module)


def robustify(
    model: Model,
    *,
    pursuit: Setting | Mapping[int, Setting] | None = None,
    layers: Layers = "first",
    form: str = "auto",
    calibrate: Any = None,
) -> Model:
    """Put RPC-Attention or token pursuit into a model, in place, and return the model. Weights and their names stay.

    Args:
        model: module with attention of timm, transformers, torch.nn, this package, or a class given to `register`.
        pursuit: settings for all chosen layers, or settings by layer, as in `{0: Pursuit(6), 3: Pursuit(2)}`: a
            `Pursuit`, a `TokenPursuit`, or one of the controls `TokenReweighting` and `Temperature`.
            Default: the settings recorded in the model's config.
        layers: "first" (default), "all", or indices from 0 in the order of the model's attention modules.
        form: "query" keeps the model's queries, "symmetric" uses the cleaned keys as queries. "auto" (default) is
            "query", or "symmetric" for attention without queries.
        calibrate: for `TokenPursuit`, clean inputs of the model without labels, such as 300 images: a tensor, or an
            iterable of batches, each a tensor, a tuple that begins with one, or a dict of arguments. The model runs on
            them twice. Their statistics become buffers of the model. Default: each input's own tokens, which is weaker.

    A second call replaces the settings of the first. The model is unchanged if an error is raised.
    """
    found = _find(model)
    if not found:
        raise InputError(_nothing_found(model))
    theirs, modules = huggingface(), [module for module, _ in found]
    known: Mapping[int, TokenStatistics] = {}
    if pursuit is not None:
        choice = Choice.of(pursuit, layers, form, len(found))
    else:
        choice = Choice.from_json(_recorded(model, found), len(found))
        known = statistics.saved(model, modules) | statistics.held(modules)
    if calibrate is not None and not choice.watches_tokens:
        raise InputError("calibrate was given, which is for TokenPursuit; leave it out for other settings")
    for index, setting in settings_of(choice, len(found)).items():
        module, kind = found[index]
        kind.refuse(module)
        kind.refuse_setting(module, setting)
        if form == "query" and not kind.has_queries(module):
            raise InputError("form is 'query', but the model's attention has no queries; use 'auto' or 'symmetric'")
    if theirs is not None:
        theirs.owned(model, modules)
    choice = choice.with_prefix(prefix_tokens(model))
    before, before_known = held_choice(modules), statistics.held(modules)
    restore(model)
    if calibrate is not None:
        try:
            _apply(model, found, replace(choice, widths={}))
            known = collect(model, modules, choice, calibrate)
        except BaseException:
            restore(model)
            if before is not None:
                _apply(model, found, before, before_known)
            raise
        restore(model)
        choice = replace(choice, widths={i: each.shift.shape[-1] for i, each in known.items()})
    return _apply(model, found, choice, known)


def _apply(model: Model, found: Found, choice: Choice, known: Mapping[int, TokenStatistics] | None = None) -> Model:
    """Put a checked choice into a plain model, and record it."""
    put_in(found, choice, known)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(isinstance(m, Robust) for m in module.modules()):
            swap(module, multihead.Padded)
    notes.write(model, choice)
    if (theirs := huggingface()) is not None:
        theirs.record(model, [module for module, _ in found])
    return model


def restore(model: Model) -> Model:
    """Undo `robustify`, in place, and return the model; its outputs are bitwise those before `robustify`."""
    modules = attention_modules(model)
    if (theirs := huggingface()) is not None:
        theirs.erase(model, modules)
    for module in model.modules():
        swap_back(module)
    model.__dict__.pop(SAVED, None)
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


def prefix_tokens(model: nn.Module) -> int:
    """Number of tokens before those of the input: class, distillation and register tokens. 1 for transformers of texts,
    whose first token is a class token or a sink of attention."""
    for module in model.modules():
        told = getattr(module, "num_prefix_tokens", None)  # timm
        if isinstance(told, int):
            return told
        names = ("cls_token", "class_token", "distillation_token")
        if found := sum(getattr(module, name, None) is not None for name in names):
            return found
    configs = (getattr(module, "config", None) for module in model.modules())
    return int(any(hasattr(c, "vocab_size") and hasattr(c, "_attn_implementation") for c in configs))


def _find(model: nn.Module) -> Found:
    if not isinstance(model, nn.Module):
        raise DtypeError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    crossing = {id(m.multihead_attn) for m in model.modules() if isinstance(m, nn.TransformerDecoderLayer)}
    made = [(module, _kind(module)) for module in model.modules() if id(module) not in crossing]
    return [(module, kind) for module, kind in made if kind is not None]


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
