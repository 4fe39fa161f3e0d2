"""Records: one flat object a measured number. Tables, figures and pages read nothing else."""

from typing import Any


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
