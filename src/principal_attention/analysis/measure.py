"""All metrics of one attention call: of the head's own values, and of null models, values independent of its keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, NonFiniteError
from ..plumbing.seeds import words
from .axes import Axes, Numbers
from .heads import Heads
from .printed import authors_projection_loss, gamma_differences
from .similarity import Reference
from .values import measure_coefficients, measure_outputs

NULLS = ("random", "shuffled", "untrained")


@dataclass(frozen=True)
class Measured:
    """Metrics (B, H) and curves (B, H, points) by null model; "none" is the head's own values."""

    numbers: dict[str, Numbers]
    curves: dict[str, Numbers]


def measure(heads: Heads, *, examples: Sequence[int], seed: int = 0, nulls: Sequence[str] = NULLS[:2]) -> Measured:
    """Measure one attention call, in float64.

    Args:
        heads: the attention call; without padding and not causal.
        examples: numbers of the examples of the batch, B in all. Random null values depend on them and on the seed.
        seed: seed of the null models. Default: 0.
        nulls: null models. Default: "random" and "shuffled".
    """
    q, k, v = (t.double() for t in (heads.queries, heads.keys, heads.values))
    n, width = k.shape[-2], v.shape[-1]
    if n < width + 2:
        raise InputError(
            f"the sequence has {n} tokens and the heads' values {width} columns, which is too few tokens to compare "
            f"subspaces; expected at least {width + 2} tokens"
        )
    if not all(torch.isfinite(t).all() for t in (q, k, v)):
        raise NonFiniteError(
            f"the queries, keys or values of layer {heads.layer} hold NaN or infinity; expected finite numbers, check "
            "the model's weights"
        )
    axes = Axes(q, k, width, heads.scale)
    reference = Reference(axes.values)
    numbers = {"none": axes.numbers() | {"j_proj_authors": authors_projection_loss(q, k, v, heads.scale)}}
    leading = axes.relative[..., :width] * axes.spectrum.log_scale.exp()
    curves: dict[str, Numbers] = {"none": {"eigenvalue": leading}}
    for null in ("none", *nulls):
        values = v if null == "none" else stand_in(null, v, heads.layer, examples, seed)
        found, columns = measure_coefficients(axes, values)
        gamma, mean, deviation = gamma_differences(axes, columns)
        found |= gamma | measure_outputs(axes, values) | reference.numbers(values, ordered=null != "shuffled")
        numbers.setdefault(null, {}).update(found)
        curves.setdefault(null, {}).update(gamma_mean=mean, gamma_std=deviation)
    return Measured(numbers, curves)


def stand_in(null: str, values: Tensor, layer: int, examples: Sequence[int], seed: int) -> Tensor:
    """Values of a null model: Gaussian for "random", else the head's own values with their tokens permuted."""
    made = []
    for example, own in zip(examples, values, strict=True):
        random = torch.Generator().manual_seed(words("null", seed, layer, example)[0])
        if null == "random":
            made.append(torch.randn(own.shape, generator=random, dtype=own.dtype).to(own.device))
        else:
            made.append(own[:, torch.randperm(own.shape[-2], generator=random)])
    return torch.stack(made)
