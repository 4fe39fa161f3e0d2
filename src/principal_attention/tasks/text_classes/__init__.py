"""Classes of texts: language models of this package, read at their last position, and encoders of transformers."""

from .kind import KIND

__all__ = ["KIND"]
