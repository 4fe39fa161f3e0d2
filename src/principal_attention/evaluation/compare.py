"""Two models on the same seeds or the same images: the paired difference, and whether it is more than noise."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from .outcomes import Result, key_of

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
        return self.deviation > 0 and not self.low <= 0 <= self.high  # equal differences have no noise to judge by

    def verdict(self) -> str:
        if self.pairs < 2:
            return "one seed: no telling"
        if not self.beyond_noise:
            return "within noise"
        return "better" if self.mean > 0 else "worse"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    n = len(differences)
    mean = statistics.fmean(differences)
    if n < 2:
        return Difference(mean, math.nan, -math.inf, math.inf, n)
    deviation = statistics.stdev(differences)
    reach = float(stats.t.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
    return Difference(mean, deviation, mean - reach, mean + reach, n)


def percent(values: Sequence[float]) -> str:
    """Fractions as "mean ± standard deviation" in %."""
    mean = f"{100 * statistics.fmean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


@dataclass(frozen=True)
class Paired:
    """Two models on the same images: how many each alone gets right, the difference of their accuracies with its 95%
    interval over resampled images (bootstrap), and McNemar's exact p that neither is better."""

    n: int
    only_ours: int
    only_theirs: int
    low: float
    high: float
    p: float

    @property
    def difference(self) -> float:
        return (self.only_ours - self.only_theirs) / self.n

    def verdict(self) -> str:
        if self.p >= 0.05:
            return "within noise"
        return "better" if self.difference > 0 else "worse"


def on_same_images(ours: Any, theirs: Any, *, seed: int = 0) -> Paired:
    """`ours` and `theirs` say of each image whether it was right."""
    a, b = np.asarray(ours, dtype=bool), np.asarray(theirs, dtype=bool)
    n, only_a, only_b = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    # an image adds 1, −1 or 0 to the difference, so resampling images is drawing how many of each there are
    shares = np.array([only_a, only_b, n - only_a - only_b]) / n
    drawn = np.random.default_rng(seed).multinomial(n, shares, size=RESAMPLES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [0.025, 0.975])
    p = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return Paired(n, only_a, only_b, float(low), float(high), float(p))


def case_by_case(ours: Sequence[Result], theirs: Sequence[Result]) -> list[tuple[dict[str, Any], Paired]]:
    """Where both models saw the same images in the same way."""
    other = {key_of(result.description): result for result in theirs}
    return [
        (result.description, on_same_images(result.right, other[key].right))
        for result in ours
        if result.answers and (key := key_of(result.description)) in other
    ]
