"""A model that tells the class of a text: one of ours, read at the last position, or an encoder of transformers."""

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

PART = 16  # texts that are computed together at least
_BREAK = re.compile(r"<br */?>")
_PIECES = re.compile(r"@[-.,]@|(?<=\w)'\w+|\w+|[^\w\s]")
_INSIDE = re.compile(r"(?<=\w)-(?=\w)|(?<=\d)[.,](?=\d)")  # of a word or a number


class LastPosition(nn.Module):
    """A language model whose last position is classified; with `mark` a learned vector stands there, as [CLS] does."""

    def __init__(self, language: LanguageModel, classes: int, *, mark: bool = False):
        super().__init__()
        dim = language.config.embed_dim
        self.language = language
        language.head.requires_grad_(False)  # tells words, which nobody asks for here
        self.mark = nn.Parameter(torch.randn(dim) * 0.02) if mark else None
        self.drop = nn.Dropout(language.config.dropout)
        self.classify = nn.Linear(dim, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Tokens (B, T) and which of them are real (B, T), padding last, to logits (B, classes)."""
        x, rows, lengths = self.language.embed(tokens), torch.arange(len(tokens), device=tokens.device), mask.sum(1)
        if self.mark is not None:  # after the last token
            x, mask = nn.functional.pad(x, (0, 0, 0, 1)), nn.functional.pad(mask, (0, 1))
            x[rows, lengths], mask[rows, lengths] = self.mark.to(x.dtype), True
            lengths = lengths + 1
        hidden = self.language.hidden(x, mask)
        return self.classify(self.drop(hidden[rows, lengths - 1]))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """A sequence classifier of transformers that takes and gives plain tensors."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.network(input_ids=tokens, attention_mask=mask.long()).logits  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TextClassifier:
    model: nn.Module  # tokens and mask to logits
    tokenize: Callable[[Sequence[str]], list[list[int]]]
    padding: int
    classes: int
    write: Callable[[Path, nn.Module, tuple[str, ...] | None], None]  # the model's files, for a folder
    how: str = ""  # it reads: whatever of that the weights do not show
    labels: tuple[str, ...] | None = None  # the names of the classes

    @property
    def network(self) -> nn.Module:
        """Without what makes a classifier of it here: what `robustify` knows."""
        model = self.model
        return model.language if isinstance(model, LastPosition) else model.network  # type: ignore[return-value]

    def save(self, folder: Path, model: nn.Module | None = None) -> None:
        """All files into a folder, atomically; `model` may hold other weights of the same network."""
        with filling(folder) as partial:
            self.write(partial, self.model if model is None else model, self.labels)

    def logits(self, texts: Sequence[str], device: torch.device | str = "cpu") -> Tensor:
        """(texts, classes); those of like length are computed together, so that little is padded."""
        rows, found = self.tokenize(texts), []
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        size = max(PART, len(rows) // 4)
        for first in range(0, len(rows), size):
            given = pad([rows[number] for number in order[first : first + size]], self.padding)
            found.append(self.model(*(tensor.to(device) for tensor in given)))
        return torch.cat(found)[torch.tensor(order).argsort()]


def pad(rows: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Tokens and which of them are real, as long as the longest."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), padding)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for number, row in enumerate(rows):
        tokens[number, : len(row)], mask[number, : len(row)] = torch.tensor(row), True
    return tokens, mask


def set_apart(text: str) -> str:
    """As WikiText spells: "a well-known film, isn't it?<br />" becomes "a well @-@ known film , isn 't it ?"."""
    plain = _BREAK.sub(" ", text).replace("’", "'")
    return " ".join(_PIECES.findall(_INSIDE.sub(r" @\g<0>@ ", plain)))


def word_tokens(tokenizer: Tokenizer, texts: Sequence[str], *, length: int | None, split: bool) -> list[list[int]]:
    """The first `length` tokens of each text, with `split` in WikiText's spelling; of a text without any, its end."""
    if split:
        texts = list(map(set_apart, texts))
    return [found[:length] or [end_of(tokenizer)] for found in encode(tokenizer, texts)]
