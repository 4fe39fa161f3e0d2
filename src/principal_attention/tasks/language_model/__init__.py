"""Language models: the next token of a text."""

from .kind import KIND

__all__ = ["KIND"]
