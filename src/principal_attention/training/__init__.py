"""The engine: a recipe becomes a run."""

from .run import train

__all__ = ["train"]
