"""Paired comparison of two models on the same seeds or the same examples."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """Mean and standard deviation of paired differences, and the 95% interval of the mean (Student's t)."""

    mean: float
    deviation: float
    low: float
    high: float
    pairs: int

    @property
    def beyond_noise(self) -> bool:
        return self.deviation > 0 and not self.low <= 0 <= self.high  # deviation 0: no estimate of the noise

    def verdict(self) -> str:
        if self.pairs < 2:
            return "one seed: unknown"
        if not self.beyond_noise:
            return "within noise"
        return "better" if self.mean > 0 else "worse"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Difference `ours` − `theirs` of numbers that are paired, such as by seed."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    n = len(differences)
    mean = statistics.fmean(differences)
    if n < 2:
        return Difference(mean, math.nan, -math.inf, math.inf, n)
    deviation = statistics.stdev(differences)
    reach = float(stats.t.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
    return Difference(mean, deviation, mean - reach, mean + reach, n)


def percent(values: Sequence[float]) -> str:
    """Mean and standard deviation of fractions in %, such as "91.0 ± 1.2"."""
    mean = f"{100 * statistics.fmean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


@dataclass(frozen=True)
class Paired:
    """Comparison of two models on the same examples."""

    n: int  # number of examples
    difference: float  # difference of the mean scores
    low: float  # bounds of its 95% bootstrap interval over examples
    high: float
    p: float  # McNemar's exact test for right and wrong answers, else a sign-flip test of the mean
    only_ours: int | None = None  # number of examples that only our model gets right; None for other scores
    only_theirs: int | None = None


def verdict(difference: float, p: float) -> str:
    if p >= 0.05:
        return "within noise"
    return "better" if difference > 0 else "worse"


def on_same_examples(ours: Any, theirs: Any, *, seed: int = 0) -> Paired:
    """Compare two models by a score per example, or by a boolean per example: whether the model is right."""
    a, b = np.asarray(ours), np.asarray(theirs)
    return (_answers if a.dtype == bool else _scores)(a, b, np.random.default_rng(seed))


def _answers(a: Any, b: Any, random: np.random.Generator) -> Paired:
    n, only_a, only_b = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    # each example adds 1, −1 or 0 to the difference, so a bootstrap sample is a multinomial draw of their counts
    shares = np.array([only_a, only_b, n - only_a - only_b]) / n
    drawn = random.multinomial(n, shares, size=RESAMPLES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [0.025, 0.975])
    p = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return Paired(n, (only_a - only_b) / n, float(low), float(high), float(p), only_a, only_b)


def _scores(a: Any, b: Any, random: np.random.Generator) -> Paired:
    apart = a.astype(float) - b.astype(float)
    n, mean = len(apart), float(apart.mean())
    resampled, flipped = np.empty(RESAMPLES), np.empty(RESAMPLES)
    for i in range(RESAMPLES):  # one at a time, to save memory
        resampled[i] = apart[random.integers(n, size=n)].mean()
        flipped[i] = (apart * random.choice((-1.0, 1.0), n)).mean()
    low, high = np.quantile(resampled, [0.025, 0.975])
    p = (1 + int((np.abs(flipped) >= abs(mean)).sum())) / (1 + RESAMPLES)
    return Paired(n, mean, float(low), float(high), p)
