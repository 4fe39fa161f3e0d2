"""Records: one flat object a measured number. Tables, figures and pages read nothing else."""

from collections.abc import Mapping
from typing import Any

MEASURED = "measured"  # key of the date of a measurement


def record(
    model: str, suite: str, case: str, metric: str, value: float, *, n: int, seed: int, **rest: Any
) -> dict[str, Any]:
    return {
        "model": model,
        "suite": suite,
        "case": case,
        "metric": metric,
        "value": value,
        "n": n,
        "seed": seed,
        **rest,
    }


def records_of(
    model: str, suite: str, case: str, metrics: Mapping[str, float], *, n: int, seed: int, **rest: Any
) -> list[dict[str, Any]]:
    """A record for each of several metrics of one case."""
    return [record(model, suite, case, metric, value, n=n, seed=seed, **rest) for metric, value in metrics.items()]
