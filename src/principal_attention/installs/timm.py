"""Warn when timm loads a saved model without the RPC-Attention that its config records.

timm ignores the note that `robustify` writes there: `create_model("local-dir:FOLDER", pretrained=True)` returns the
plain model with the weights of the robust one. Statistics of token pursuit, which a plain model has no buffers for, are
kept in an attribute of the model for a later `robustify`.
"""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

MARK = "principal-attention: "  # prefix of such a note
SAVED = "rpc_saved"  # attribute of a plain model: statistics from its weights file, by their names there
_PREFIX = "rpc_"  # prefix of the names of these statistics in their module


def execute(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute timm's module with `create_model`, and replace that function by one that warns."""
    run(module)
    watch_creation(module)


def watch_creation(factory: Any) -> None:
    """Replace `create_model` in all modules of timm that hold it by one that warns."""
    create = factory.create_model
    if hasattr(create, "__wrapped__"):
        return

    @wraps(create)
    def create_model(*args: Any, **options: Any) -> Any:
        _watch_loading(sys.modules.get("timm.models._builder"))
        model = create(*args, **options)
        config = getattr(model, "pretrained_cfg", None)
        noted = config.get("notes") or () if isinstance(config, dict) else ()
        if any(str(note).startswith(MARK) for note in noted) and not _expected():
            warnings.warn(
                "this model's config records RPC-Attention, which timm does not put in; call "
                "principal_attention.robustify(model) to restore the saved model",
                UserWarning,
                stacklevel=2,
            )
        return model

    holders: list[Any] = [factory, sys.modules.get("timm.models"), sys.modules.get("timm")]
    for holder in holders:
        if holder is not None and getattr(holder, "create_model", None) is create:
            holder.create_model = create_model


def _watch_loading(builder: Any) -> None:
    """Replace timm's `load_pretrained` by one that keeps the statistics of token pursuit."""
    load = getattr(builder, "load_pretrained", None)
    if load is None or hasattr(load, "__wrapped__"):
        return

    @wraps(load)
    def load_pretrained(model: Any, *args: Any, **options: Any) -> Any:
        given = options.get("filter_fn")

        def keep(weights: dict[str, Any], *rest: Any) -> dict[str, Any]:
            found = {name: x for name, x in weights.items() if name.rpartition(".")[2].startswith(_PREFIX)}
            if found:
                model.__dict__[SAVED] = found
            weights = {name: x for name, x in weights.items() if name not in found}
            return given(weights, *rest) if given is not None else weights  # type: ignore[no-any-return]

        return load(model, *args, **options | {"filter_fn": keep})

    builder.load_pretrained = load_pretrained


def _expected() -> bool:
    """Whether the caller is this package, which puts in RPC-Attention itself."""
    frame = sys._getframe(2)
    return str(frame.f_globals.get("__name__", "")).startswith("principal_attention.")
