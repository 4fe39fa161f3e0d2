"""A warning where timm opens a saved model without the RPC-Attention that its config records.

timm knows nothing of the note that `robustify` leaves there: `create_model("local-dir:FOLDER", pretrained=True)` gives
the plain model with the weights of the robust one.
"""

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

MARK = "principal-attention: "  # the beginning of such a note


def execute(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute timm's module that creates models, and watch what it creates."""
    run(module)
    watch_creation(module)


def watch_creation(factory: Any) -> None:
    """Replace `create_model` wherever timm has it by one that warns."""
    create = factory.create_model
    if hasattr(create, "__wrapped__"):
        return

    @wraps(create)
    def create_model(*args: Any, **options: Any) -> Any:
        model = create(*args, **options)
        config = getattr(model, "pretrained_cfg", None)
        noted = config.get("notes") or () if isinstance(config, dict) else ()
        if any(str(note).startswith(MARK) for note in noted) and not _expected():
            warnings.warn(
                "this model's config records RPC-Attention, which timm does not put in: call "
                "principal_attention.robustify(model) to have the model that was saved",
                UserWarning,
                stacklevel=2,
            )
        return model

    holders: list[Any] = [factory, sys.modules.get("timm.models"), sys.modules.get("timm")]
    for holder in holders:
        if holder is not None and getattr(holder, "create_model", None) is create:
            holder.create_model = create_model


def _expected() -> bool:
    """Whether it is this package that opens the model: it puts in what is recorded itself."""
    frame = sys._getframe(2)
    return str(frame.f_globals.get("__name__", "")).startswith("principal_attention.")
