"""Language models under evaluation, and the token stream of a text."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ...adapt.describe import describe, name_of
from ...adapt.named import ModelRef
from ...errors import InputError
from ...evaluation.outcomes import Columns, Result
from ...evaluation.results import of_result
from ...evaluation.suite import Case
from ...language.load import load_language_model
from ...language.texts import Texts
from ...language.vocabulary import encode_lines, end_of, unknown_of
from ...language.word_swap import RATE, swap_lines
from ...plumbing.fingerprints import fingerprint
from .perplexity import Windows, perplexity, token_losses


class LanguageSubject:
    """A language model under evaluation, with its tokenizer."""

    def __init__(self, model: ModelRef | str, device: torch.device | str = "cpu"):
        ref = ModelRef.of(model)
        self.model, self.tokenizer = load_language_model(ref)
        self.model.to(device).requires_grad_(False)
        self.name, self.device, self.robustify = name_of(ref, self.model), device, describe(self.model)

    def word(self, token: int) -> str:
        return self.tokenizer.id_to_token(token) or ""

    def fingerprint(self) -> str:
        return fingerprint(self.model, self.model.config, self.tokenizer.to_str())


@dataclass(frozen=True)
class Positions:
    """A batch of positions at which the next token is predicted."""

    number: int
    indices: list[int]

    def first(self, count: int) -> "Positions":
        return replace(self, indices=self.indices[:count])

    def to(self, device: torch.device | str) -> "Positions":
        return self


class Stream:
    """The tokens of a split in one sequence; every token except the first is a target.

    `swap` names where words are swapped: nowhere (None), in inputs and targets ("both"), or in the "inputs" alone.
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
                "--swap inputs was given and swapping words changes the number of tokens; it is for word vocabularies: "
                "use --swap both"
            )
        if len(inputs) < 2:
            raise InputError(f"the split {split.name} has {len(inputs)} tokens; expected at least two")
        self.inputs, self.targets = inputs[:-1].to(subject.device), targets[1:].to(subject.device)
        unknown = unknown_of(subject.tokenizer)
        self.unknown = (
            -1 if unknown is None else unknown
        )  # -1 is not a token: sub-word vocabularies have no unknown words
        self.words = (
            sum(len(line.split()) + 1 for line in lines) - 1
        )  # ends of lines count as words; the first word is not predicted

    def __len__(self) -> int:
        return len(self.targets)

    def fingerprint(self) -> str:
        seen = hashlib.sha256(self.inputs.cpu().numpy().tobytes())
        seen.update(self.targets.cpu().numpy().tobytes())
        return seen.hexdigest()[:8]

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[Positions]:
        for number in wanted:
            yield Positions(number, list(range(number * size, min(len(self), (number + 1) * size))))


def perplexity_case(stream: Stream, windows: Windows, *, together: int, limit: int | None = None) -> Case:
    """Case of the first `limit` tokens, or of all; `together` windows form a batch."""
    n = min(limit or len(stream), len(stream))
    name = windows.name if n == len(stream) else f"{windows.name}, first {n} tokens"
    pinned: dict[str, Any] = {"protocol": name, "context": windows.context}
    if windows.kind == "sliding":
        pinned["stride"] = windows.stride
    if n == len(stream):
        pinned["words"] = stream.words
    suite, case = ("word_swap", "word_swap") if stream.swap else ("perplexity", "clean")
    measure = partial(_losses, stream=stream, windows=windows, together=together)
    return Case(suite, case, n, measure, pinned | stream.swap)


def _losses(subject: LanguageSubject, batch: Positions, *, stream: Stream, windows: Windows, together: int) -> Columns:
    losses = token_losses(subject.model, stream.inputs, stream.targets, batch.indices, windows, together=together)
    asked = stream.targets[batch.indices]
    return {
        "loss": losses.tolist(),
        "token": asked.tolist(),
        "unknown": (asked == stream.unknown).int().tolist(),
    }


def token_records(model: str, result: Result) -> list[dict[str, Any]]:
    losses = result.columns["loss"]
    mean = float(losses.mean())
    found = {"perplexity": perplexity(mean), "loss": mean, "unknown_share": float(result.columns["unknown"].mean())}
    if (words := result.description.get("words")) and words > 0:
        found["word_perplexity"] = perplexity(float(losses.sum()) / words)  # comparable between vocabularies
    return [of_result(model, result, metric, value) for metric, value in found.items()]


def token_rows(result: Result, name: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    """Rows of all target tokens with their log-probabilities."""
    columns = result.columns
    for position, token, loss in zip(columns["index"], columns["token"], columns["loss"], strict=True):
        yield {"position": int(position) + 1, "token": name(int(token)), "log_prob": -float(loss)}
