"""Records from the measurements of all examples: means with intervals, and differences from null models."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plumbing.records import record
from .bootstrap import Interval, Sums, beyond_a_population, example_counts, intervals, population_mean
from .measure import Measured

Key = tuple[int, int, str, str]  # layer, prefix (0: the whole sequence), null, metric

# Direction of each metric as values approach kernel PCA: +1 towards 1, −1 towards 0. Other metrics have no direction.
TOWARDS = {
    "rayleigh_residual": -1, "subspace_residual": -1, "infeasible_share": -1, "angle_smallest": -1, "angle_median": -1,
    "gamma_relative": -1, "violation_share": -1, "overlap": 1, "explained_share": 1, "matched_cosine": 1,
    "linear_cka": 1, "kernel_cka": 1,
}  # fmt: skip


@dataclass
class Part:
    """Measurements of one batch: numbers (examples, heads) and curves (examples, heads, points).

    The nulls of the untrained networks are `untrained-0`, `untrained-1` and so on. A row is NaN if the network was not
    run on the example, or if the sequence is shorter than the prefix.
    """

    examples: list[int]
    numbers: dict[Key, np.ndarray]
    curves: dict[Key, np.ndarray]

    def put(self, found: Measured, rows: Sequence[int], layer: int, prefix: int, network: str = "none") -> None:
        """Store the measurements of these rows of the batch."""
        for store, given in ((self.numbers, found.numbers), (self.curves, found.curves)):
            for null, named in given.items():
                for metric, tensor in named.items():
                    values = tensor.cpu().numpy()
                    key = (layer, prefix, null if network == "none" else network, metric)
                    if key not in store:
                        store[key] = np.full((len(self.examples), *values.shape[1:]), np.nan)
                    store[key][list(rows)] = values

    def tensors(self) -> dict[str, np.ndarray]:
        """All arrays by name, as they are saved; `of` reverses it."""
        named = {"examples": np.asarray(self.examples, dtype=np.int64)}
        for kind, store in (("number", self.numbers), ("curve", self.curves)):
            named |= {"/".join([kind, *map(str, key)]): values for key, values in store.items()}
        return named

    @classmethod
    def of(cls, tensors: dict[str, np.ndarray]) -> "Part":
        part = cls([int(i) for i in tensors.pop("examples")], {}, {})
        for name, values in tensors.items():
            kind, layer, prefix, null, metric = name.split("/")
            store = part.numbers if kind == "number" else part.curves
            store[int(layer), int(prefix), null, metric] = values
        return part


class Summary:
    """Sums over examples, in memory that does not depend on the number of examples."""

    def __init__(self, seed: int):
        self.seed = seed
        self.sums: dict[Key, Sums] = {}
        self.curves: dict[Key, list[Any]] = {}  # sum over examples, and number of examples

    def add(self, parts: Iterable[Part]) -> "Summary":
        for part in parts:
            counts = example_counts(part.examples, self.seed)
            shown: dict[tuple[bool, ...], list[Key]] = {}  # keys that have numbers for the same examples
            for key, values in part.numbers.items():
                shown.setdefault(tuple(~np.isnan(values).all(-1)), []).append(key)
            for rows, keys in shown.items():
                if any(rows):
                    self._add(counts[:, rows], {key: part.numbers[key][list(rows)] for key in keys})
            for (layer, prefix, null, metric), values in part.curves.items():
                there = ~np.isnan(values).all((-2, -1))
                total = self.curves.setdefault((layer, prefix, null.partition("-")[0], metric), [0.0, 0])
                total[0] = total[0] + values[there].mean(1).sum(0)
                total[1] += int(there.sum())
        return self

    def _add(self, counts: np.ndarray, numbers: dict[Key, np.ndarray]) -> None:
        """Add all keys, of which there are thousands, by one matrix product."""
        sums = counts @ np.hstack(list(numbers.values()))
        ends = np.cumsum([values.shape[-1] for values in numbers.values()])
        weight = counts.sum(-1, keepdims=True)
        for (key, values), total in zip(numbers.items(), np.split(sums, ends[:-1], axis=1), strict=True):
            self.sums.setdefault(key, Sums(values.shape[-1])).add(total, weight)

    def records(self, model: str, data: str) -> list[dict[str, Any]]:
        with np.errstate(invalid="ignore", over="ignore"):
            made = [*self._numbers(), *self._curves()]
        # For very large queries ‖φ(q)‖² exceeds float64; such metrics have no record.
        return [
            record(model, "kernel_pca", seed=self.seed, data=data, **each)
            for each in made
            if all(math.isfinite(x) for x in each.values() if isinstance(x, float))
        ]

    def _numbers(self) -> Iterator[dict[str, Any]]:
        self.networks = sorted({null for _, _, null, _ in self.sums if null.startswith("untrained-")})
        for layer, prefix, null, metric in sorted({(la, p, null.partition("-")[0], m) for la, p, null, m in self.sums}):
            own = self.sums.get((layer, prefix, "none", metric))
            heads, gaps, n = self._null(own, layer, prefix, null, metric)
            for head, each in enumerate(heads):
                told = {
                    "case": f"layer {layer} head {head}", "metric": metric, "value": each.value, "n": n,
                    "layer": layer, "head": head, "null": null, "low": each.low, "high": each.high,
                    **({"prefix": prefix} if prefix else {}),
                }  # fmt: skip
                if gaps is not None:
                    value, low, high = gaps[head]
                    told |= {"difference": value, "difference_low": low, "difference_high": high}
                yield told

    def _null(
        self, own: Sums | None, layer: int, prefix: int, null: str, metric: str
    ) -> tuple[list[Interval], list[Interval] | None, int]:
        """Interval of each head, interval of its difference from the null, and number of examples."""
        if null != "untrained":
            found = self.sums[layer, prefix, null, metric]
            gaps = intervals(own.means() - found.means()) if own is not None and null != "none" else None
            return intervals(found.means()), gaps, found.n
        keys = [(layer, prefix, name, metric) for name in self.networks]
        several = [self.sums[key] for key in keys if key in self.sums]
        population = np.hstack([sums.means() for sums in several])  # heads of all initialisations
        each = intervals(population_mean(population)) * several[0].total.shape[-1]
        gaps = beyond_a_population(own.means(), population) if own is not None else None
        return each, gaps, sum(sums.n for sums in several)

    def _curves(self) -> Iterator[dict[str, Any]]:
        """Records of the curves, averaged over the heads of a layer."""
        for (layer, prefix, null, metric), (total, count) in sorted(self.curves.items()):
            for component, value in enumerate(total / count if count else ()):
                yield {
                    "case": f"layer {layer}", "metric": metric, "value": float(value), "n": count, "layer": layer,
                    "null": null, "component": component, **({"prefix": prefix} if prefix else {}),
                }  # fmt: skip
