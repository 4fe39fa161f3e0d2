"""Verdicts on the claims that attention is kernel PCA, by rules that are printed with each verdict.

A head *clears a null* in a metric if the 95% interval of its difference from that null model lies entirely on the side
of zero towards kernel PCA. The interval is over paired examples, and for the untrained network also over its heads and
initialisations. An effect counts only if it clears every null. Without an effect, one head in forty clears a null.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .measure import NULLS
from .summary import TOWARDS

# A claim holds if the median head is FAR of the way from the best null to kernel PCA, and a share MOST of heads clears.
FAR, MOST = 0.9, 0.9
START, HALF = 0.1, 0.5  # the same two shares for a claim that holds in part
EXACT = 0.01  # model and untrained network within this of kernel PCA: true by construction, so untrained is no null
FEWEST = 10  # examples required; with fewer the intervals are too narrow
COMPARED = {  # claims, with their metrics
    "the values' coefficients are eigenvectors of the centred Gram matrix": ("rayleigh_residual",),
    "they span the leading principal axes": ("overlap",),
    "the outputs are the projections, up to a linear map": ("explained_share",),
    "the values are those of Theorem 1": ("matched_cosine", "linear_cka", "kernel_cka"),
    "γ is constant": ("gamma_relative",),
}
Place = tuple[int, int, int]  # layer, head, prefix


@dataclass(frozen=True)
class Verdict:
    """Answer to one claim."""

    claim: str
    answer: str  # holds, in part, fails, not asked
    sentence: str  # the numbers
    rule: str  # the rule that the answer follows from


def judge(records: Sequence[dict[str, Any]]) -> list[Verdict]:
    """Verdicts on all claims from the records of an analysis."""
    found = _Found(records)
    return [*(found.compared(claim, metrics) for claim, metrics in COMPARED.items()), found.projection_loss()]


def heads_that_clear(records: Iterable[dict[str, Any]], metric: str) -> list[bool] | None:
    """Whether each head clears every null; None if the metric has no direction or there is no null."""
    found = _Found(each for each in records if each["metric"] == metric)
    if metric not in TOWARDS or not found.counted(metric):
        return None
    return [found.clears(metric, place, found.counted(metric)) for place in found.by[metric, "none"]]


class _Found:
    """Records by metric, null and head."""

    def __init__(self, records: Iterable[dict[str, Any]]):
        self.by: dict[tuple[str, str], dict[Place, dict[str, Any]]] = {}
        for each in records:
            if "head" in each:
                place = (each["layer"], each["head"], each.get("prefix", 0))
                self.by.setdefault((each["metric"], each["null"]), {})[place] = each

    def nulls(self, metric: str) -> list[str]:
        return [null for null in NULLS if (metric, null) in self.by]

    def counted(self, metric: str) -> list[str]:
        """Nulls that a head must clear; without `untrained` if model and untrained network both are kernel PCA."""
        both = (
            (self._left(metric), self._left(metric, "untrained")) if (metric, "untrained") in self.by else (math.inf,)
        )
        constructed = max(both) <= EXACT
        return [null for null in self.nulls(metric) if null != "untrained" or not constructed]

    def values(self, metric: str, null: str = "none") -> list[float]:
        return [each["value"] for each in self.by.get((metric, null), {}).values()]

    def clears(self, metric: str, place: Place, nulls: Sequence[str]) -> bool:
        sign = TOWARDS[metric]
        edge = "difference_low" if sign > 0 else "difference_high"
        return all(sign * self.by[metric, null][place][edge] > 0 for null in nulls)

    def share(self, metric: str, nulls: Sequence[str]) -> float:
        """Share of heads that clear all of these nulls."""
        return statistics.fmean(self.clears(metric, place, nulls) for place in self.by[metric, "none"])

    def compared(self, claim: str, metrics: Sequence[str]) -> Verdict:
        where = "in each measure" if len(metrics) > 1 else f"in {metrics[0]}"
        rule = (
            f"holds where, {where}, the typical head has gone {FAR:.0%} of the way from the best null to kernel PCA "
            f"and {MOST:.0%} of heads clear every null; in part where it has gone {START:.0%} of it and half of the "
            "heads clear; fails otherwise"
        )
        there = [metric for metric in metrics if (metric, "none") in self.by and self.counted(metric)]
        n = min((each["n"] for metric in there for each in self.by[metric, "none"].values()), default=0)
        if not there:
            return Verdict(
                claim, "not asked", "There is no null, or a single query, which says nothing about it.", rule
            )
        if n < FEWEST:
            return Verdict(
                claim, "not asked", f"{n} examples are too few for intervals; ask for {FEWEST} or more.", rule
            )
        answer = min(self._answer(metric) for metric in there)
        told = "; ".join(self._told(metric) for metric in there)
        return Verdict(claim, ("fails", "in part", "holds")[answer], f"{told}.", rule)

    def _answer(self, metric: str) -> int:
        nulls = self.counted(metric)
        gone, share = self._gone(metric, nulls), self.share(metric, nulls)
        return 2 if gone >= FAR and share >= MOST else 1 if gone >= START and share >= HALF else 0

    def _typical(self, metric: str, null: str = "none") -> float:
        return statistics.median(self.values(metric, null))

    def _left(self, metric: str, null: str = "none") -> float:
        """Distance of the median head from kernel PCA."""
        return abs(max(TOWARDS[metric], 0) - self._typical(metric, null))

    def _gone(self, metric: str, nulls: Sequence[str]) -> float:
        """Share of the distance from the best null to kernel PCA that the median head has covered."""
        whole = min(self._left(metric, null) for null in nulls)
        return 1 - self._left(metric) / whole if whole > 0 else -math.inf

    def _told(self, metric: str) -> str:
        nulls = self.nulls(metric)
        each = (
            f"{null} {self._typical(metric, null):.2f}, cleared by {self.share(metric, [null]):.0%} of heads"
            for null in nulls
        )
        every = f"; {self.share(metric, nulls):.0%} clear every null" if len(nulls) > 1 else ""
        return f"{metric} is {self._typical(metric):.2f} ({'; '.join(each)}{every})"

    def projection_loss(self) -> Verdict:
        claim = "J_proj as printed is a projection error"
        rule = "holds where no row has ‖h‖² > ‖φ(q)‖²: a projection cannot be longer than what is projected"
        found = [self.values(metric) for metric in ("violation_share", "j_proj", "j_star")]
        if not all(found):
            return Verdict(claim, "not asked", "‖φ(q)‖² is too large for float64.", rule)
        share, loss, star = map(statistics.fmean, found)
        told = f"‖h‖² exceeds ‖φ(q)‖² in {share:.1%} of rows; J_proj is {loss:.3g} where kernel PCA has {star:.3g}."
        return Verdict(claim, "fails" if any(found[0]) else "holds", told, rule)
