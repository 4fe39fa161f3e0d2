"""Means over examples with bootstrap intervals, in memory that does not depend on the number of examples.

Each example counts Poisson(1) times in each resample, which approximates drawing with replacement. The counts depend
only on the seed and the number of the example, so they are the same for all metrics, and differences are paired.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from ..plumbing.seeds import words

RESAMPLES = 1000


class Interval(NamedTuple):
    """Mean over examples with its 95% interval."""

    value: float
    low: float
    high: float


class Sums:
    """Sums over examples for each of `heads` heads, (RESAMPLES + 1, heads). Row 0 counts each example once."""

    def __init__(self, heads: int):
        self.total = np.zeros((RESAMPLES + 1, heads))
        self.weight = np.zeros((RESAMPLES + 1, 1))

    @property
    def n(self) -> int:
        return int(self.weight[0, 0])

    def add(self, total: np.ndarray, weight: np.ndarray) -> None:
        """Add the sums (rows, heads) of a batch, and the number of examples in each resample, (rows, 1)."""
        self.total += total
        self.weight += weight

    def means(self) -> np.ndarray:
        """Means (rows, heads); NaN in resamples without examples."""
        return np.divide(self.total, self.weight, out=np.full_like(self.total, np.nan), where=self.weight > 0)


def example_counts(examples: Sequence[int], seed: int) -> np.ndarray:
    """Count of each example in each resample, (RESAMPLES + 1, examples); row 0 is all ones."""
    drawn = [np.random.default_rng(words("bootstrap", seed, each, count=4)).poisson(1, RESAMPLES) for each in examples]
    return np.vstack([np.ones(len(examples)), np.array(drawn, dtype=float).reshape(len(examples), RESAMPLES).T])


def intervals(means: np.ndarray) -> list[Interval]:
    """Mean and 95% interval of each column of `means` (rows, columns), without resamples that are NaN."""
    low, high = np.nanquantile(means[1:], [0.025, 0.975], axis=0)
    return [Interval(*map(float, each)) for each in zip(means[0], low, high, strict=True)]


def beyond_a_population(own: np.ndarray, population: np.ndarray) -> list[Interval]:
    """Difference between each head, `own` (rows, heads), and the mean of the untrained heads, `population` (rows, M).

    Untrained heads differ from each other by more than the noise over examples. The interval is therefore widened by
    Student's prediction interval for a new untrained head.
    """
    count = population.shape[-1]
    spread = float(np.std(population[0], ddof=1)) if count > 1 else math.inf
    reach = spread * float(stats.t.ppf(0.975, count - 1)) * math.sqrt(1 + 1 / count) if count > 1 else math.inf
    return [
        Interval(value, value - math.hypot(value - low, reach), value + math.hypot(high - value, reach))
        for value, low, high in intervals(own - population_mean(population))
    ]


def population_mean(population: np.ndarray) -> np.ndarray:
    """Mean over the population, (rows, 1), without NaN; NaN where all are NaN."""
    there = ~np.isnan(population)
    count = there.sum(-1, keepdims=True)
    total = np.where(there, population, 0.0).sum(-1, keepdims=True)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
