"""Training of recipes, for every kind of model."""

from .run import train

__all__ = ["train"]
