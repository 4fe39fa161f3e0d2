"""Text classification with language models of this package, at their last position, or transformers' encoders."""

from .kind import KIND

__all__ = ["KIND"]
