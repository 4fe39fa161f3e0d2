"""Text classifiers: a language model of this package with a classifier at its last position, or an encoder of
transformers.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..plumbing.files import filling
from .model import LanguageModel
from .vocabulary import encode, end_of

PART = 16  # smallest batch of `TextClassifier.logits`
_BREAK = re.compile(r"<br */?>")
_PIECES = re.compile(r"@[-.,]@|(?<=\w)'\w+|\w+|[^\w\s]")
_INSIDE = re.compile(r"(?<=\w)-(?=\w)|(?<=\d)[.,](?=\d)")  # punctuation inside a word or a number


class LastPosition(nn.Module):
    """Language model with a linear classifier at the last position. `mark`: append a learned vector after the last
    token and classify at its position, like [CLS]."""

    def __init__(self, language: LanguageModel, classes: int, *, mark: bool = False):
        super().__init__()
        dim = language.config.embed_dim
        self.language = language
        language.head.requires_grad_(False)  # the head predicts words and is not used here
        self.mark = nn.Parameter(torch.randn(dim) * 0.02) if mark else None
        self.drop = nn.Dropout(language.config.dropout)
        self.classify = nn.Linear(dim, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, classes) from tokens (B, T) and a mask (B, T), True for a real token; padding comes last."""
        x, rows, lengths = self.language.embed(tokens), torch.arange(len(tokens), device=tokens.device), mask.sum(1)
        if self.mark is not None:  # after the last token
            x, mask = nn.functional.pad(x, (0, 0, 0, 1)), nn.functional.pad(mask, (0, 1))
            x[rows, lengths], mask[rows, lengths] = self.mark.to(x.dtype), True
            lengths = lengths + 1
        hidden = self.language.hidden(x, mask)
        return self.classify(self.drop(hidden[rows, lengths - 1]))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Sequence classifier of transformers that takes tokens and a mask and returns logits as tensors."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.network(input_ids=tokens, attention_mask=mask.long()).logits  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TextClassifier:
    """Text classifier with its tokenizer and its class names."""

    model: nn.Module  # from tokens and mask to logits
    tokenize: Callable[[Sequence[str]], list[list[int]]]
    padding: int  # token used for padding
    classes: int  # number of classes
    write: Callable[[Path, nn.Module, tuple[str, ...] | None], None]  # writes the model's files to a folder
    how: str = ""  # configuration and tokenizer as text, for the fingerprint
    labels: tuple[str, ...] | None = None  # names of the classes; None if unknown

    @property
    def network(self) -> nn.Module:
        """Language model, or model of transformers, without the wrapper around it; the input of `robustify`."""
        model = self.model
        return model.language if isinstance(model, LastPosition) else model.network  # type: ignore[return-value]

    def save(self, folder: Path, model: nn.Module | None = None) -> None:
        """Save all files to a folder. `model`: same network, other weights. Default: `self.model`."""
        with filling(folder) as partial:
            self.write(partial, self.model if model is None else model, self.labels)

    def logits(self, texts: Sequence[str], device: torch.device | str = "cpu") -> Tensor:
        """Logits (texts, classes). Texts are batched by length, to keep padding short."""
        rows, found = self.tokenize(texts), []
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        size = max(PART, len(rows) // 4)
        for first in range(0, len(rows), size):
            given = pad([rows[number] for number in order[first : first + size]], self.padding)
            found.append(self.model(*(tensor.to(device) for tensor in given)))
        return torch.cat(found)[torch.tensor(order).argsort()]


def pad(rows: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Tokens (B, T), padded to the longest row, and their mask (B, T), True for a real token."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), padding)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)], mask[number, : len(row)] = torch.tensor(row), True
    return tokens, mask


def set_apart(text: str) -> str:
    """WikiText's spelling of a text: "a well-known film, isn't it?<br />" is "a well @-@ known film , isn 't it ?"."""
    plain = _BREAK.sub(" ", text).replace("’", "'")
    return " ".join(_PIECES.findall(_INSIDE.sub(r" @\g<0>@ ", plain)))


def word_tokens(tokenizer: Tokenizer, texts: Sequence[str], *, length: int | None, split: bool) -> list[list[int]]:
    """First `length` tokens of each text; an empty text becomes one end token. `split`: convert to WikiText's spelling
    first."""
    if split:
        texts = list(map(set_apart, texts))
    return [found[:length] or [end_of(tokenizer)] for found in encode(tokenizer, texts)]
