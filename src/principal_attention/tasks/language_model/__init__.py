"""Language modelling: prediction of the next token."""

from .kind import KIND

__all__ = ["KIND"]
