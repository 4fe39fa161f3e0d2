"""Records: one flat object a measured number. Tables, figures and pages read nothing else."""

from collections.abc import Mapping
from typing import Any

from ..recipes import Recipe


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


def of_run(
    recipe: Recipe, suite: str, case: str, metrics: Mapping[str, float], *, n: int, **rest: Any
) -> list[dict[str, Any]]:
    """What a training measured at its end."""
    return [
        record(recipe.name, suite, case, metric, value, n=n, seed=recipe.seed, **rest)
        for metric, value in metrics.items()
    ]
