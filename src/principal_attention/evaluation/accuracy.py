"""Top-1 and top-5 over a set, each example counted once whatever the number of processes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError


@dataclass(frozen=True)
class Accuracy:
    n: int
    top1: float
    top5: float
    loss: float

    @classmethod
    def of(cls, counts: Tensor) -> "Accuracy":
        """From the sums of `count`, which may be added up over processes."""
        n, top1, top5, loss = counts.tolist()
        if n == 0:
            raise InputError("there are no examples to measure accuracy on")
        return cls(int(n), top1 / n, top5 / n, loss / n)

    def metrics(self) -> dict[str, float]:
        return {"top1": self.top1, "top5": self.top5, "loss": self.loss}


@torch.inference_mode()
def count(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    device: torch.device | str = "cpu",
    change: Callable[[Tensor, int], Tensor] | None = None,
) -> Tensor:
    """How many examples, how many right, how many among the first five, and the sum of the losses.

    A batch is what the model takes, then the labels. `change(images, batch number)` alters the images first, by noise
    for example.
    """
    training = model.training
    model.eval()
    counts = torch.zeros(4, dtype=torch.float64, device=device)
    for number, batch in enumerate(batches):
        if isinstance(batch, Exception):
            raise batch
        inputs, labels = [t.to(device) for t in batch[:-1]], batch[-1].to(device)
        if change is not None:
            inputs[0] = change(inputs[0], number)
        logits = model(*inputs).float()
        ranked = logits.topk(min(5, logits.shape[-1])).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        counts += torch.stack([torch.tensor(len(labels), device=device), ranked[:, 0].sum(), ranked.sum(), loss])
    model.train(training)
    return counts
