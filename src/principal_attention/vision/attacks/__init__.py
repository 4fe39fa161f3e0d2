"""Attacks on image classifiers, with one function `attack` for all of them, and `attack_patches` for patches."""

from .attack import ATTACKS, Attack, attack
from .attempt import size_of
from .patches import Patched, attack_patches

__all__ = ["ATTACKS", "Attack", "Patched", "attack", "attack_patches", "size_of"]
