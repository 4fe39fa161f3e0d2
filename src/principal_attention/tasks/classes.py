"""Right and wrong answers: what a model said of every example, and top-1 and top-5 over a set of them."""

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


def answers(logits: Tensor, labels: Tensor) -> Columns:
    """What the model said: its class, how many classes it held likelier than the true one, and how sure it was."""
    logits = logits.float()
    predicted = logits.argmax(-1)
    true = logits.gather(-1, labels[:, None])
    rank = torch.where(predicted == labels, 0, (logits > true).sum(-1).clamp(min=1))
    broken = ~logits.isfinite().all(-1)  # no answer is a wrong answer
    predicted, rank = predicted.masked_fill(broken, -1), rank.masked_fill(broken, logits.shape[-1])
    sure = logits.double().softmax(-1).amax(-1).nan_to_num(0.0)  # single precision knows no difference near 1
    return {
        "label": labels.tolist(),
        "predicted": predicted.tolist(),
        "rank": rank.tolist(),
        "confidence": [float(f"{x:.12g}") for x in sure.tolist()],
    }


def right(result: Result) -> Any:
    """Of each example, whether the answer was right."""
    return result.columns["predicted"] == result.columns["label"]


def interval(count: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    found = stats.binomtest(count, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def top1(model: str, result: Result) -> Record:
    """The share of right answers, with its interval."""
    correct = right(result)
    low, high = interval(int(correct.sum()), len(correct))
    return of_result(model, result, "top1", float(correct.mean()), low=low, high=high)


def accuracy_rows(records: Iterable[Record], setting: Callable[[Record], str]) -> Rows:
    """A row a case: what, how, how many examples, top-1 with its interval. No rows where there is no case."""
    rows = [["case", "setting", "examples", "top-1 %", "95%", "minutes"]]
    for each in records:
        if each["metric"] == "top1":
            value, low, high = (f"{100 * each[key]:.1f}" for key in ("value", "low", "high"))
            minutes = f"{each['seconds'] / 60:.1f}"
            rows.append([each["case"], setting(each), str(each["n"]), value, f"{low} to {high}", minutes])
    return rows if len(rows) > 1 else []
