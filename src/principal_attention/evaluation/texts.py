"""Language models and classifiers of texts under test: clean texts, and texts with words swapped."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..language.folder import read_language_model
from ..language.load import load_classifier
from ..language.texts import Texts
from ..language.vocabulary import encode_lines, end_of, unknown_of
from ..language.word_swap import RATE, swap_lines, swap_words
from ..plumbing.fingerprints import fingerprint
from .identity import name_of
from .order import stratified
from .outcomes import Columns, Result, answers
from .perplexity import Protocol, perplexity, token_losses
from .results import of_result, top1
from .run import Case

CHUNK = 1024  # tokens whose losses are written down together


class LanguageSubject:
    """A language model and its vocabulary."""

    def __init__(self, model: str, device: torch.device | str = "cpu"):
        self.model, self.tokenizer = read_language_model(Path(model).expanduser())
        self.model.to(device).requires_grad_(False)
        self.name, self.device = name_of(model), device

    def fingerprint(self) -> str:
        return fingerprint(self.model, self.model.config, self.tokenizer.to_str())


class ClassifierSubject:
    def __init__(self, model: str, device: torch.device | str = "cpu"):
        self.classifier = load_classifier(model)
        self.classifier.model.to(device).requires_grad_(False)
        self.name, self.device = name_of(model), device

    def fingerprint(self) -> str:
        return fingerprint(self.classifier.model, self.classifier.how)


# Classes of texts


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
    """A split in an order of which every beginning is stratified."""

    def __init__(self, split: Texts, classes: int, names: tuple[str, ...] | None = None):
        assert split.labels is not None
        self.given = split.labels  # as the data number them, so the same for every model
        split = split.numbered_as(names)
        assert split.labels is not None
        wrong = [label for label in split.labels if not 0 <= label < classes]
        if wrong:
            raise InputError(f"the split {split.name} has the label {wrong[0]}; the model tells {classes} classes")
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


def class_cases(n: int, suites: Sequence[str], *, rate: float = RATE, seed: int = 0) -> list[Case]:
    cases = [Case("clean", "clean", n, partial(_classes, rate=None, seed=seed))] if "clean" in suites else []
    if "word_swap" in suites:
        measure = partial(_classes, rate=rate, seed=seed)
        cases.append(Case("word_swap", "word_swap", n, measure, {"rate": rate, "seed": seed}))
    return cases


@torch.inference_mode()
def _classes(subject: ClassifierSubject, batch: TextBatch, *, rate: float | None, seed: int) -> Columns:
    texts = batch.texts
    if rate is not None:
        texts = [swap_words(t, seed=seed, number=i, rate=rate) for t, i in zip(texts, batch.indices, strict=True)]
    return answers(subject.classifier.logits(texts, subject.device), batch.labels)


# The tokens of a text


@dataclass(frozen=True)
class Positions:
    """A stretch of a text: which of its tokens are asked for."""

    number: int
    indices: list[int]

    def first(self, count: int) -> "Positions":
        return replace(self, indices=self.indices[:count])

    def to(self, device: torch.device | str) -> "Positions":
        return self


class Stream:
    """A split as one row of tokens, of which each but the first is asked for after those before it.

    `swap` is what of it has words swapped: nothing, "both", inputs and what is asked for, or the "inputs" alone.
    """

    def __init__(
        self, subject: LanguageSubject, split: Texts, *, swap: str | None = None, rate: float = RATE, seed: int = 0
    ):
        self.swap = {} if swap is None else {"rate": rate, "seed": seed, "swap": swap}
        lines = split.texts
        swapped = lines if swap is None else swap_lines(lines, seed=seed, rate=rate)
        inputs = encode_lines(subject.tokenizer, swapped)
        targets = inputs if swap != "inputs" else encode_lines(subject.tokenizer, lines)
        end = end_of(subject.tokenizer)
        if len(inputs) != len(targets) or not torch.equal(inputs == end, targets == end):  # line by line
            raise InputError(
                "a swapped word has another number of tokens here, so inputs and targets do not stand side by side; "
                "--swap inputs is for vocabularies of words: use --swap both"
            )
        if len(inputs) < 2:
            raise InputError(f"the split {split.name} has {len(inputs)} tokens; expected at least two")
        self.inputs, self.targets = inputs[:-1].to(subject.device), targets[1:].to(subject.device)
        unknown = unknown_of(subject.tokenizer)
        self.unknown = -1 if unknown is None else unknown  # no token's number: sub-words know every word
        self.words = sum(len(line.split()) + 1 for line in lines) - 1  # and the end of each line; not the very first

    def __len__(self) -> int:
        return len(self.targets)

    def fingerprint(self) -> str:
        seen = hashlib.sha256(self.inputs.cpu().numpy().tobytes())
        seen.update(self.targets.cpu().numpy().tobytes())
        return seen.hexdigest()[:8]

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[Positions]:
        for number in wanted:
            yield Positions(number, list(range(number * size, min(len(self), (number + 1) * size))))


def perplexity_case(stream: Stream, protocol: Protocol, *, together: int, limit: int | None = None) -> Case:
    """The losses of the first `limit` tokens, or of all; `together` windows are computed at a time."""
    n = min(limit or len(stream), len(stream))
    name = protocol.name if n == len(stream) else f"{protocol.name}, first {n} tokens"
    pinned: dict[str, Any] = {"protocol": name, "context": protocol.context}
    if protocol.kind == "sliding":
        pinned["stride"] = protocol.stride
    if n == len(stream):
        pinned["words"] = stream.words
    suite, case = ("word_swap", "word_swap") if stream.swap else ("perplexity", "clean")
    measure = partial(_losses, stream=stream, protocol=protocol, together=together)
    return Case(suite, case, n, measure, pinned | stream.swap)


def _losses(
    subject: LanguageSubject, batch: Positions, *, stream: Stream, protocol: Protocol, together: int
) -> Columns:
    losses = token_losses(subject.model, stream.inputs, stream.targets, batch.indices, protocol, together=together)
    asked = stream.targets[batch.indices]
    return {
        "loss": losses.tolist(),
        "token": asked.tolist(),
        "unknown": (asked == stream.unknown).int().tolist(),
    }


# Records


def summarise_texts(model: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    return [
        each
        for result in results
        for each in (_tokens(model, result) if "loss" in result.columns else [top1(model, result)])
    ]


def _tokens(model: str, result: Result) -> list[dict[str, Any]]:
    losses = result.columns["loss"]
    mean = float(losses.mean())
    found = {"perplexity": perplexity(mean), "loss": mean, "unknown_share": float(result.columns["unknown"].mean())}
    if (words := result.description.get("words")) and words > 0:
        found["word_perplexity"] = perplexity(float(losses.sum()) / words)  # comparable between vocabularies
    return [of_result(model, result, metric, value) for metric, value in found.items()]


def token_rows(result: Result, name: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    """Each token that was asked for, with its log-probability."""
    columns = result.columns
    for position, token, loss in zip(columns["index"], columns["token"], columns["loss"], strict=True):
        yield {"position": int(position) + 1, "token": name(int(token)), "log_prob": -float(loss)}
