"""Top-1 and top-5 over a set, each example counted once whatever the number of processes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Accuracy:
    n: int
    top1: float
    top5: float
    loss: float

    def metrics(self) -> dict[str, float]:
        return {"top1": self.top1, "top5": self.top5, "loss": self.loss}


@torch.inference_mode()
def measure_accuracy(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    device: torch.device | str = "cpu",
    reduce: Callable[[Tensor], Tensor] = lambda counts: counts,
    change: Callable[[Tensor, int], Tensor] | None = None,
) -> Accuracy:
    """`reduce` sums over processes; `change(images, batch number)` alters the images first, by noise for example."""
    training = model.training
    model.eval()
    counts = torch.zeros(4, dtype=torch.float64, device=device)
    for number, batch in enumerate(batches):
        if isinstance(batch, Exception):
            raise batch
        images, labels = (t.to(device) for t in batch)
        if change is not None:
            images = change(images, number)
        logits = model(images).float()
        ranked = logits.topk(min(5, logits.shape[-1])).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        counts += torch.stack([torch.tensor(len(labels), device=device), ranked[:, 0].sum(), ranked.sum(), loss])
    model.train(training)
    n, top1, top5, total = reduce(counts).tolist()
    if n == 0:
        return Accuracy(0, float("nan"), float("nan"), float("nan"))
    return Accuracy(int(n), top1 / n, top5 / n, total / n)
