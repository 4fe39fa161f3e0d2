"""RPC-Attention in existing models: models of timm, transformers and torch.nn, and registered attention modules."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import restore as restore
    from .models import robustify as robustify
    from .registry import register as register

__all__ = ["register", "restore", "robustify"]


def __getattr__(name: str) -> Any:
    """Import on first access, so that `named` and `spec` can be used without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".registry" if name == "register" else ".models", __name__), name)
