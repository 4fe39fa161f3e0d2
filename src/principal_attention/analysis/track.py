"""What is watched while a model trains, on a fixed batch of held-out examples: `track: kernel_pca` in a recipe.

The paper's Figure 1 is the projection loss over the epochs; beside it stands how much of the leading principal axes the
values span, and how much random values would.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .capture import capture
from .heads import Heads
from .measure import measure

EXAMPLES = 16
WATCHED = {  # what is logged of each layer, by which null's name
    "j_proj": "none", "phi_norm": "none", "h_norm": "none", "rayleigh_residual": "none", "overlap": "none",
    "overlap_random": "random",
}  # fmt: skip


class KernelPCATracker:
    def __init__(self, show: Callable[[nn.Module], object], count: int):
        """`show` calls a model on the examples, of which there are `count`."""
        self.show, self.count = show, count

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Means over layers and heads as `kernel_pca_METRIC`, over a layer's heads as `kernel_pca_METRIC_LAYER`."""
        layers: list[dict[str, float]] = []

        def receive(heads: Heads) -> None:
            found: dict[str, Any] = measure(heads, examples=range(self.count), nulls=("random",)).numbers
            layer = {name: found[null][name.removesuffix("_random")].mean().item() for name, null in WATCHED.items()}
            # the paper's code logs the logarithm of each layer's mean, which is not there where that is negative
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
