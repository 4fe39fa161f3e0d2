"""Classes of images: transformers of timm, transformers and this package that tell what an image shows."""

from .kind import KIND

__all__ = ["KIND"]
