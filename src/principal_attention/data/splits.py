"""Parts of a split that are always the same: what is held out, and what a limit leaves."""

import numpy as np

from ..errors import InputError

HELD = "holdout"  # the name of the split that is taken of the training examples


def hold_out(length: int, count: int, unit: str, split: str) -> tuple[list[int], list[int]]:
    """Which of a split's examples are kept for training, and which are held out for validation."""
    if not 0 < count < length:
        raise InputError(f"data.holdout is {count}; expected less than the {length} {unit} of {split}")
    mixed = _mixed(length)
    return sorted(mixed[count:]), sorted(mixed[:count])


def limited(length: int, limit: int | None) -> list[int] | None:
    """A random part of so many examples, in their order; None: all of them."""
    return None if limit is None or length <= limit else sorted(_mixed(length)[:limit])


def one_validation(validation: str | None, holdout: int) -> None:
    if holdout and validation:
        raise InputError(f"data.validation is {validation!r} and data.holdout is {holdout}: drop one")


def _mixed(length: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(0).permutation(length)]  # of its own seed: the same in every run
