"""Kernel-PCA metrics during training, on a fixed batch of held-out examples: `track: kernel_pca` in a recipe.

Metrics are the projection loss of the paper's Figure 1, and how much of the leading principal axes the values span,
compared with random values.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .capture import capture
from .heads import Heads
from .measure import measure

EXAMPLES = 16  # examples in the batch
WATCHED = {  # metrics logged for each layer, with their null model
    "j_proj": "none", "phi_norm": "none", "h_norm": "none", "rayleigh_residual": "none", "overlap": "none",
    "overlap_random": "random",
}  # fmt: skip


class KernelPCATracker:
    """Measures the heads of a model on a fixed batch. `show(model)` runs the model on the batch of `count` examples."""

    def __init__(self, show: Callable[[nn.Module], object], count: int):
        self.show, self.count = show, count

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Metrics by name: `kernel_pca_METRIC`, the mean over all heads, and `kernel_pca_METRIC_LAYER`, per layer."""
        layers: list[dict[str, float]] = []

        def receive(heads: Heads) -> None:
            found: dict[str, Any] = measure(heads, examples=range(self.count), nulls=("random",)).numbers
            layer = {name: found[null][name.removesuffix("_random")].mean().item() for name, null in WATCHED.items()}
            # The authors' code logs the logarithm of each layer's mean, which does not exist for a negative mean.
            loss = found["none"]["j_proj_authors"].mean().item()
            layers.append(layer | ({"log_j_proj_authors": math.log(loss)} if loss > 0 else {}))

        training = model.training
        try:
            with capture(model.eval(), receive):
                self.show(model)
        finally:
            model.train(training)
        logged: dict[str, float] = {}
        for name in (*WATCHED, "log_j_proj_authors"):
            values = {number: layer[name] for number, layer in enumerate(layers) if name in layer}
            logged |= {f"kernel_pca_{name}_{number}": value for number, value in values.items()}
            if len(values) == len(layers):
                logged[f"kernel_pca_{name}"] = sum(values.values()) / len(values)
        return logged
