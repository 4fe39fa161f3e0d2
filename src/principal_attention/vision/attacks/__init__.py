"""Attacks on image classifiers: one way to call them all."""

from .attack import ATTACKS, Attack, attack

__all__ = ["ATTACKS", "Attack", "attack"]
