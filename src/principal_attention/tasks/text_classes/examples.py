"""Text classifiers under evaluation, and their labelled evaluation texts."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ...adapt.describe import describe, name_of
from ...adapt.named import ModelRef
from ...data.order import stratified
from ...evaluation.outcomes import Columns
from ...evaluation.suite import Case
from ...language.load import load_classifier
from ...language.texts import Texts
from ...language.word_swap import swap_words
from ...plumbing.fingerprints import fingerprint
from ..classes import answers


class TextSubject:
    """A text classifier under evaluation."""

    def __init__(self, model: ModelRef | str, device: torch.device | str = "cpu"):
        ref = ModelRef.of(model)
        self.classifier = load_classifier(ref)
        self.classifier.model.to(device).requires_grad_(False)
        network = self.classifier.network
        self.name, self.device, self.robustify = name_of(ref, network), device, describe(network)

    def fingerprint(self) -> str:
        return fingerprint(self.classifier.model, self.classifier.how)


@dataclass(frozen=True)
class TextBatch:
    number: int
    texts: list[str]
    labels: Tensor
    indices: list[int]

    def first(self, count: int) -> "TextBatch":
        return replace(self, texts=self.texts[:count], labels=self.labels[:count], indices=self.indices[:count])

    def to(self, device: torch.device | str) -> "TextBatch":
        return replace(self, labels=self.labels.to(device))


class LabelledTexts:
    """Labelled texts of a split, in an order in which the first N are stratified, for every N."""

    def __init__(self, split: Texts, classes: int, names: tuple[str, ...] | None = None):
        assert split.labels is not None
        self.given = split.labels  # numbered as in the data, so that the order is the same for every model
        split = split.numbered_as(names)
        assert split.labels is not None
        split.check_labels(classes)
        self.texts, self.labels, self.order = split.texts, split.labels, stratified(self.given)

    def __len__(self) -> int:
        return len(self.order)

    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.texts, self.given)).encode()).hexdigest()[:8]

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[TextBatch]:
        for number in wanted:
            indices = self.order[number * size : (number + 1) * size]
            texts = [self.texts[index] for index in indices]
            yield TextBatch(number, texts, torch.tensor([self.labels[index] for index in indices]), indices)


def clean_case(n: int) -> Case:
    return Case("clean", "clean", n, partial(_classes, rate=None, seed=0))


def swap_case(n: int, rate: float, seed: int) -> Case:
    return Case("word_swap", "word_swap", n, partial(_classes, rate=rate, seed=seed), {"rate": rate, "seed": seed})


@torch.inference_mode()
def _classes(subject: TextSubject, batch: TextBatch, *, rate: float | None, seed: int) -> Columns:
    texts = batch.texts
    if rate is not None:
        texts = [swap_words(t, seed=seed, number=i, rate=rate) for t, i in zip(texts, batch.indices, strict=True)]
    return answers(subject.classifier.logits(texts, subject.device), batch.labels)
