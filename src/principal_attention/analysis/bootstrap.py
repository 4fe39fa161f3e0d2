"""Means over examples with bootstrap intervals, in memory that does not grow with the examples.

Each example counts Poisson(1) times in each resample, which is what drawing with replacement from many comes to. Its
counts depend on the seed and its number alone, and being the same for every quantity they make differences paired.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._random import words

RESAMPLES = 1000


class Interval(NamedTuple):
    """A mean over examples and its 95% interval."""

    value: float
    low: float
    high: float


class Sums:
    """Weighted sums of one number an example, for each of `heads`; row 0 is of the examples as they are."""

    def __init__(self, heads: int):
        self.total = np.zeros((RESAMPLES + 1, heads))
        self.weight = np.zeros((RESAMPLES + 1, 1))

    @property
    def n(self) -> int:
        return int(self.weight[0, 0])

    def add(self, counts: np.ndarray, values: np.ndarray) -> None:
        """`counts` (rows, examples) and `values` (examples, heads)."""
        self.total += counts @ values
        self.weight += counts.sum(-1, keepdims=True)

    def intervals(self) -> list[Interval]:
        return _intervals(self.total, self.weight)

    def below(self, other: "Sums") -> list[Interval]:
        """How much larger the other is, on the same examples."""
        return _intervals(other.total - self.total, self.weight)


def example_counts(examples: Sequence[int], seed: int) -> np.ndarray:
    """How often each example is drawn, (RESAMPLES + 1, examples); once in row 0."""
    drawn = [np.random.default_rng(words("bootstrap", seed, each, count=4)).poisson(1, RESAMPLES) for each in examples]
    return np.vstack([np.ones(len(examples)), np.array(drawn, dtype=float).reshape(len(examples), RESAMPLES).T])


def _intervals(total: np.ndarray, weight: np.ndarray) -> list[Interval]:
    """Resamples that drew no example are left out."""
    drawn = weight[:, 0] > 0
    means = total[drawn] / weight[drawn]
    low, high = np.quantile(means[1:], [0.025, 0.975], axis=0)
    return [Interval(*map(float, each)) for each in zip(means[0], low, high, strict=True)]
