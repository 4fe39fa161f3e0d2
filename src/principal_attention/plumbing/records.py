"""Records: one flat object per measured number. Tables, figures and pages are made from records only."""

from collections.abc import Mapping
from typing import Any

MEASURED = "measured"  # key of the date of a measurement


def record(
    model: str, suite: str, case: str, metric: str, value: float, *, n: int, seed: int, **rest: Any
) -> dict[str, Any]:
    """Record of one number; `n`: number of examples."""
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
    """Records of several metrics of one case."""
    return [record(model, suite, case, metric, value, n=n, seed=seed, **rest) for metric, value in metrics.items()]
