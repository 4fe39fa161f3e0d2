"""Two models over the same seeds: the paired difference, and whether it is more than noise."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats


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
