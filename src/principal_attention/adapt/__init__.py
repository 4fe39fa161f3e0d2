"""RPC-Attention in models people already have: timm, transformers, torch.nn, and modules of their own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import restore as restore
    from .models import robustify as robustify
    from .registry import register as register

__all__ = ["register", "restore", "robustify"]


def __getattr__(name: str) -> Any:
    """When they are first asked for: how a model is named and described is read without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".registry" if name == "register" else ".models", __name__), name)
