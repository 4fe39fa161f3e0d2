"""Image classification with models of timm, transformers and this package."""

from .kind import KIND

__all__ = ["KIND"]
