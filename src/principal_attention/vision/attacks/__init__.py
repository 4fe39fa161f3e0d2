"""Attacks on image classifiers: one way to call them all."""

from .attack import ATTACKS, Attack, attack
from .task import size_of

__all__ = ["ATTACKS", "Attack", "attack", "size_of"]
