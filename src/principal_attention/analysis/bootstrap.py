"""Means over examples with bootstrap intervals, in memory that does not grow with the examples.

Each example counts Poisson(1) times in each resample, which is what drawing with replacement from many comes to. Its
counts depend on the seed and its number alone, and being the same for every quantity they make differences paired.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from ..plumbing.seeds import words

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

    def add(self, total: np.ndarray, weight: np.ndarray) -> None:
        """Sums (rows, heads) over examples, each as often as it was drawn, and how often that was, (rows, 1)."""
        self.total += total
        self.weight += weight

    def means(self) -> np.ndarray:
        """(rows, heads); NaN where a resample drew no example."""
        return np.divide(self.total, self.weight, out=np.full_like(self.total, np.nan), where=self.weight > 0)


def example_counts(examples: Sequence[int], seed: int) -> np.ndarray:
    """How often each example is drawn, (RESAMPLES + 1, examples); once in row 0."""
    drawn = [np.random.default_rng(words("bootstrap", seed, each, count=4)).poisson(1, RESAMPLES) for each in examples]
    return np.vstack([np.ones(len(examples)), np.array(drawn, dtype=float).reshape(len(examples), RESAMPLES).T])


def intervals(means: np.ndarray) -> list[Interval]:
    """Of each column; resamples that drew nothing are left out."""
    low, high = np.nanquantile(means[1:], [0.025, 0.975], axis=0)
    return [Interval(*map(float, each)) for each in zip(means[0], low, high, strict=True)]


def beyond_a_population(own: np.ndarray, population: np.ndarray) -> list[Interval]:
    """How far each head (rows, heads) is from heads drawn at random, of which (rows, several) were seen.

    A head of an untrained network differs from another one by more than the examples' noise, so the interval is that of
    a new draw: it widens by Student's prediction interval of the population, independently of the examples.
    """
    count = population.shape[-1]
    spread = float(np.std(population[0], ddof=1)) if count > 1 else math.inf
    reach = spread * float(stats.t.ppf(0.975, count - 1)) * math.sqrt(1 + 1 / count) if count > 1 else math.inf
    return [
        Interval(value, value - math.hypot(value - low, reach), value + math.hypot(high - value, reach))
        for value, low, high in intervals(own - population_mean(population))
    ]


def population_mean(population: np.ndarray) -> np.ndarray:
    """(rows, 1), of those that were drawn; NaN where none was."""
    there = ~np.isnan(population)
    count = there.sum(-1, keepdims=True)
    total = np.where(there, population, 0.0).sum(-1, keepdims=True)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
