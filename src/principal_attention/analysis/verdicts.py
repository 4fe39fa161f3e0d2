"""What the numbers say of each claim, by rules that are stated with the answer.

A head *clears a null* in a metric when the 95% interval of its difference from that null, paired by example, lies on
kernel PCA's side of zero. An effect counts only where it clears every null. With many heads some clear by luck: one in
forty for each null, if nothing were there.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .measure import NULLS
from .summary import TOWARDS

NEAR = 0.1  # how far from kernel PCA's own value counts as being there
MOST = 0.9  # the share of heads that must clear every null for a claim to hold
HALF = 0.5
EXACT = 0.01  # so near, a head need not clear the untrained network: what is kernel PCA by construction always was
COMPARED = {  # what is claimed, and the measures of it with the value that kernel PCA has
    "the values' coefficients are eigenvectors of the centred Gram matrix": {"rayleigh_residual": 0.0},
    "they span the leading principal axes": {"overlap": 1.0},
    "the outputs are the projections, up to a linear map": {"explained_share": 1.0},
    "the values are those of Theorem 1": {"matched_cosine": 1.0, "linear_cka": 1.0, "kernel_cka": 1.0},
    "γ is constant": {"gamma_relative": 0.0},
}
Place = tuple[int, int, int]  # layer, head, prefix


@dataclass(frozen=True)
class Verdict:
    claim: str
    answer: str  # holds, in part, fails, not asked
    sentence: str
    rule: str


def judge(records: Sequence[dict[str, Any]]) -> list[Verdict]:
    found = _Found(records)
    return [*(found.compared(claim, metrics) for claim, metrics in COMPARED.items()), found.projection_loss()]


def heads_that_clear(records: Iterable[dict[str, Any]], metric: str) -> list[bool] | None:
    """Of each head whether it clears every null; None where no direction is kernel PCA's, or there is no null."""
    found = _Found(each for each in records if each["metric"] == metric)
    if metric not in TOWARDS or not found.nulls(metric):
        return None
    return [found.clears(metric, place, found.nulls(metric)) for place in found.by[metric, "none"]]


class _Found:
    """The records by metric, null and head."""

    def __init__(self, records: Iterable[dict[str, Any]]):
        self.by: dict[tuple[str, str], dict[Place, dict[str, Any]]] = {}
        for each in records:
            if "head" in each:
                place = (each["layer"], each["head"], each.get("prefix", 0))
                self.by.setdefault((each["metric"], each["null"]), {})[place] = each

    def nulls(self, metric: str) -> list[str]:
        return [null for null in NULLS if (metric, null) in self.by]

    def values(self, metric: str, null: str = "none") -> list[float]:
        return [each["value"] for each in self.by.get((metric, null), {}).values()]

    def clears(self, metric: str, place: Place, nulls: Sequence[str]) -> bool:
        sign = TOWARDS[metric]
        edge = "difference_low" if sign > 0 else "difference_high"
        there = abs(self.by[metric, "none"][place]["value"] - max(sign, 0)) <= EXACT
        return all(sign * self.by[metric, null][place][edge] > 0 or (there and null == "untrained") for null in nulls)

    def share(self, metric: str, nulls: Sequence[str]) -> float:
        """Of heads that clear all of these."""
        places = self.by[metric, "none"]
        return statistics.fmean(self.clears(metric, place, nulls) for place in places)

    def compared(self, claim: str, metrics: dict[str, float]) -> Verdict:
        there = {metric: exact for metric, exact in metrics.items() if (metric, "none") in self.by}
        rule = (
            f"holds where the typical head's {' and '.join(metrics)} {'are' if len(metrics) > 1 else 'is'} within "
            f"{NEAR} of {next(iter(metrics.values())):g} and {MOST:.0%} of heads clear every null; in part where half "
            "of them clear every null; fails otherwise"
        )
        if not any(self.nulls(metric) for metric in there):
            return Verdict(claim, "not asked", "a single query, or no null, says nothing about it", rule)
        answers = []
        for metric, exact in there.items():
            near, share = abs(self._typical(metric) - exact) <= NEAR, self.share(metric, self.nulls(metric))
            answers.append(2 if near and share >= MOST else 1 if share >= HALF else 0)
        told = "; ".join(self._told(metric) for metric in there)
        return Verdict(claim, ("fails", "in part", "holds")[min(answers)], f"{told}.", rule)

    def _typical(self, metric: str, null: str = "none") -> float:
        return statistics.median(self.values(metric, null))

    def _told(self, metric: str) -> str:
        nulls = self.nulls(metric)
        each = (
            f"{null} {self._typical(metric, null):.2f}, cleared by {self.share(metric, [null]):.0%} of heads"
            for null in nulls
        )
        every = f"; {self.share(metric, nulls):.0%} clear every null" if len(nulls) > 1 else ""
        return f"{metric} is {self._typical(metric):.2f} ({'; '.join(each)}{every})"

    def projection_loss(self) -> Verdict:
        share, loss, star = (statistics.fmean(self.values(m)) for m in ("violation_share", "j_proj", "j_star"))
        return Verdict(
            "J_proj as printed is a projection error",
            "holds" if max(self.values("violation_share")) == 0 else "fails",
            f"‖h‖² exceeds ‖φ(q)‖² in {share:.1%} of rows; J_proj is {loss:.3g} where kernel PCA has {star:.3g}.",
            "holds where no row has ‖h‖² > ‖φ(q)‖²: a projection cannot be longer than what is projected",
        )
