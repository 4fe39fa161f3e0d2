"""Training task of text classification."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ...language.classifier import LastPosition, pad
from ...language.load import build_classifier
from ...language.texts import Texts, count_classes, open_splits
from ...plumbing.processes import Place
from ...plumbing.records import records_of
from ...plumbing.seeds import seed_all
from ...training.batches import BatchPlan, divide
from ...training.engine import Task
from ..classes import Accuracy, count
from .recipe import TextRecipe

Labelled = tuple[list[list[int]], list[int]]  # tokens and classes


class TextTask(Task):
    def __init__(self, recipe: TextRecipe):
        self.recipe, data = recipe, recipe.data
        splits = open_splits(data.source, labelled=True, **data.splits)
        classes = count_classes(splits)
        seed_all("initialisation", recipe.seed)
        assert recipe.init_from is not None
        self.classifier = build_classifier(
            recipe.init_from, classes, length=data.length, mark=recipe.mark, split=data.split
        )
        self.classifier = replace(self.classifier, labels=splits["train"].classes)
        self.model: nn.Module = self.classifier.model
        self.language = self.model.language if isinstance(self.model, LastPosition) else None
        if recipe.robustify is not None:
            recipe.robustify.put_into(self.classifier.network)
        self.names = {role: split.name for role, split in splits.items()}
        self.splits: dict[str, Labelled] = {role: self._tokens(split) for role, split in splits.items()}
        lengths = tuple(map(len, self.splits["train"][0])) if data.by_length else None
        self.plan = BatchPlan(len(splits["train"]), recipe.training.batch_size, recipe.seed, lengths=lengths)
        self.last: Accuracy | None = None

    def _tokens(self, split: Texts) -> Labelled:
        assert split.labels is not None
        return self.classifier.tokenize(split.texts), split.labels

    def batches(self, steps: range, place: Place) -> Iterator[Any]:
        shards, parts = divide(self.plan, steps, place, self.recipe.training.accumulate)
        return (self._batch("train", [i for i, _ in self.plan.shard(step, part, parts)]) for step, part in shards)

    def _batch(self, role: str, numbers: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        tokens, labels = self.splits[role]
        return (
            *pad([tokens[number] for number in numbers], self.classifier.padding),
            torch.tensor([labels[number] for number in numbers]),
        )

    def loss(self, model: nn.Module, batch: Any, step: int) -> Tensor:
        device = next(model.parameters()).device
        *given, labels = (t.to(device) for t in batch)
        loss = F.cross_entropy(model(*given).float(), labels, label_smoothing=self.recipe.training.smoothing)
        return loss if self.language is None else loss + self.language.balance_loss()

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        self.last = self._measure("validation", model, accelerator)
        return _metrics(self.last)

    def _measure(self, role: str, model: nn.Module, accelerator: Accelerator) -> Accuracy:
        """Accuracy on a split; texts are sorted by length, to save padding."""
        tokens, _ = self.splits[role]
        order = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
        mine, size = order[accelerator.process_index :: accelerator.num_processes], self.plan.batch_size
        batches = (self._batch(role, mine[i : i + size]) for i in range(0, len(mine), size))
        return Accuracy.of(accelerator.reduce(count(model, batches, device=accelerator.device)))

    def watched(self) -> dict[str, float]:
        return {} if self.language is None else self.language.statistics()

    def digest(self) -> str:
        return hashlib.sha256(repr((self.splits, self.classifier.labels)).encode()).hexdigest()

    def finish(self, model: nn.Module, accelerator: Accelerator) -> list[dict[str, Any]]:
        """Accuracy on every split; the validation accuracy is that of the last evaluation."""
        assert self.last is not None
        known = {"validation": self.last}
        found = {role: known.get(role) or self._measure(role, model, accelerator) for role in self.splits}
        return [
            line
            for role, each in found.items()
            for line in records_of(
                self.recipe.name, "clean", self.names[role], _metrics(each), n=each.n, seed=self.recipe.seed
            )
        ]

    def save(self, folder: Path, model: nn.Module) -> None:
        self.classifier.save(folder, model)

    def headline(self, metrics: dict[str, float]) -> str:
        return f"top-1 {metrics['top1']:.2%} on {self.names['validation']}"


def _metrics(found: Accuracy) -> dict[str, float]:
    """Metrics without top-5, which is not informative for few classes."""
    return {"top1": found.top1, "loss": found.loss}
