"""A model while it is attacked."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Context manager in which the model is in evaluation mode and its parameters get no gradients."""
    training = [module for module in model.modules() if module.training]
    wanted = [p for p in model.parameters() if p.requires_grad]
    try:
        model.eval()
        for p in wanted:
            p.requires_grad_(False)
        yield
    finally:
        for module in training:
            module.training = True
        for p in wanted:
            p.requires_grad_(True)
