"""Attacks on image classifiers: one way to call them all."""

from .attack import ATTACKS, Attack, attack
from .attempt import size_of

__all__ = ["ATTACKS", "Attack", "attack", "size_of"]
