"""Subsets of a split, the same in every run: held-out and limited examples."""

import numpy as np

from ..errors import InputError

HELD = "holdout"  # name of the split that is taken from the training examples


def hold_out(length: int, count: int, unit: str, split: str) -> tuple[list[int], list[int]]:
    """Indices of the examples kept for training, and of the `count` examples held out for validation."""
    if not 0 < count < length:
        raise InputError(f"data.holdout is {count}; expected fewer than the {length} {unit} of {split}")
    mixed = _mixed(length)
    return sorted(mixed[count:]), sorted(mixed[:count])


def limited(length: int, limit: int | None) -> list[int] | None:
    """Sorted indices of a random subset of `limit` examples; None: all examples."""
    return None if limit is None or length <= limit else sorted(_mixed(length)[:limit])


def one_validation(validation: str | None, holdout: int) -> None:
    if holdout and validation:
        raise InputError(f"data.validation is {validation!r} and data.holdout is {holdout}: drop one")


def _mixed(length: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(0).permutation(length)]  # fixed seed: the same in every run
