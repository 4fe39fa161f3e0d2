"""Answers of a classifier to each example, and top-1 and top-5 accuracy over a set of examples."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from ..errors import InputError
from ..evaluation.outcomes import Columns, Result
from ..evaluation.results import of_result
from ..evaluation.suite import Record, Rows


@dataclass(frozen=True)
class Accuracy:
    n: int
    top1: float
    top5: float
    loss: float

    @classmethod
    def of(cls, counts: Tensor) -> "Accuracy":
        """Accuracy from the sums that `count` returns; sums of several processes can be added."""
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
    """Number of examples, of top-1 and of top-5 correct answers, and the sum of the losses.

    A batch holds the inputs of the model, followed by the labels. `change(images, batch number)` alters the images
    first, for example by noise.
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


def answers(logits: Tensor, labels: Tensor) -> Columns:
    """Columns of a batch: label, predicted class, rank of the label (0: highest logit), and largest probability."""
    logits = logits.float()
    predicted = logits.argmax(-1)
    true = logits.gather(-1, labels[:, None])
    rank = torch.where(predicted == labels, 0, (logits > true).sum(-1).clamp(min=1))
    broken = ~logits.isfinite().all(-1)  # logits that are not finite count as a wrong answer
    predicted, rank = predicted.masked_fill(broken, -1), rank.masked_fill(broken, logits.shape[-1])
    sure = logits.double().softmax(-1).amax(-1).nan_to_num(0.0)  # float32 cannot tell probabilities near 1 apart
    return {
        "label": labels.tolist(),
        "predicted": predicted.tolist(),
        "rank": rank.tolist(),
        "confidence": [float(f"{x:.12g}") for x in sure.tolist()],
    }


def right(result: Result) -> Any:
    """Whether the answer to each example is correct."""
    return result.columns["predicted"] == result.columns["label"]


def interval(count: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of the share count / n."""
    found = stats.binomtest(count, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def top1(model: str, result: Result) -> Record:
    """Record of the share of correct answers, with its interval."""
    correct = right(result)
    low, high = interval(int(correct.sum()), len(correct))
    return of_result(model, result, "top1", float(correct.mean()), low=low, high=high)


def accuracy_rows(records: Iterable[Record], setting: Callable[[Record], str]) -> Rows:
    """Table with one row per case: setting, number of examples, top-1 with its interval. Empty without cases."""
    rows = [["case", "setting", "examples", "top-1 %", "95%", "minutes"]]
    for each in records:
        if each["metric"] == "top1":
            value, low, high = (f"{100 * each[key]:.1f}" for key in ("value", "low", "high"))
            minutes = f"{each['seconds'] / 60:.1f}"
            rows.append([each["case"], setting(each), str(each["n"]), value, f"{low} to {high}", minutes])
    return rows if len(rows) > 1 else []
