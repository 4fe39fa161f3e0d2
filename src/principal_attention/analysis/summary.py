"""What was measured of every example becomes records: means with intervals, and differences from nulls."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evaluation.records import record
from .bootstrap import Sums, example_counts
from .measure import Measured

Key = tuple[int, int, str, str]  # layer, prefix (0: the whole sequence), null, metric

# Which way a number goes as values come closer to kernel PCA; where it is not here, no way is better.
TOWARDS = {
    "rayleigh_residual": -1, "subspace_residual": -1, "infeasible_share": -1, "angle_smallest": -1, "angle_median": -1,
    "gamma_relative": -1, "violation_share": -1, "overlap": 1, "explained_share": 1, "matched_cosine": 1,
    "linear_cka": 1, "kernel_cka": 1,
}  # fmt: skip


@dataclass
class Part:
    """One batch: which examples, numbers (examples, heads) and curves (examples, heads, points)."""

    examples: list[int]
    numbers: dict[Key, np.ndarray]
    curves: dict[Key, np.ndarray]

    def put(self, found: Measured, rows: slice, layer: int, prefix: int, network: str) -> None:
        """Some rows of the batch. What an untrained network's own values give is the null of that name."""
        for store, given in ((self.numbers, found.numbers), (self.curves, found.curves)):
            for null, named in given.items():
                for metric, tensor in named.items():
                    values = tensor.cpu().numpy()
                    key = (layer, prefix, null if network == "none" else network, metric)
                    if key not in store:  # rows that never come belong to sequences that are too short
                        store[key] = np.full((len(self.examples), *values.shape[1:]), np.nan)
                    store[key][rows] = values

    def tensors(self) -> dict[str, np.ndarray]:
        """All of it under flat names, as a file has it."""
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
    """Sums over examples; how much they take does not depend on how many those are."""

    def __init__(self, seed: int):
        self.seed = seed
        self.sums: dict[Key, Sums] = {}
        self.curves: dict[Key, list[Any]] = {}  # sum and count

    def add(self, parts: Iterable[Part]) -> "Summary":
        for part in parts:
            counts = example_counts(part.examples, self.seed)
            for key, values in part.numbers.items():
                there = ~np.isnan(values).all(-1)
                self.sums.setdefault(key, Sums(values.shape[-1])).add(counts[:, there], values[there])
            for key, values in part.curves.items():
                there = ~np.isnan(values).all((-2, -1))
                total = self.curves.setdefault(key, [0.0, 0])
                total[0] = total[0] + values[there].mean(1).sum(0)
                total[1] += int(there.sum())
        return self

    def records(self, model: str, data: str) -> list[dict[str, Any]]:
        made = [*self._numbers(), *self._curves()]
        return [record(model, "kernel_pca", seed=self.seed, data=data, **each) for each in made]

    def _numbers(self) -> Iterator[dict[str, Any]]:
        for (layer, prefix, null, metric), sums in sorted(self.sums.items()):
            own = self.sums.get((layer, prefix, "none", metric))
            gaps = sums.below(own) if null != "none" and own is not None else None
            for head, each in enumerate(sums.intervals()):
                told = {
                    "case": f"layer {layer} head {head}", "metric": metric, "value": each.value, "n": sums.n,
                    "layer": layer, "head": head, "null": null, "low": each.low, "high": each.high,
                    **({"prefix": prefix} if prefix else {}),
                }  # fmt: skip
                if gaps is not None:
                    value, low, high = gaps[head]
                    told |= {"difference": value, "difference_low": low, "difference_high": high}
                yield told

    def _curves(self) -> Iterator[dict[str, Any]]:
        """Averaged over the heads of a layer."""
        for (layer, prefix, null, metric), (total, count) in sorted(self.curves.items()):
            for component, value in enumerate(total / count):
                yield {
                    "case": f"layer {layer}", "metric": metric, "value": float(value), "n": count, "layer": layer,
                    "null": null, "component": component, **({"prefix": prefix} if prefix else {}),
                }  # fmt: skip
