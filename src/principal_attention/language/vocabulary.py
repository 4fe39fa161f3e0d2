"""Tokenizers: a vocabulary of words counted from texts, or any `tokenizer.json`."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordLevelTrainer
from torch import Tensor

from ..errors import InputError

FILE = "tokenizer.json"
_HALF_A_LETTER = re.compile("[\ud800-\udfff]")  # surrogates, which Python uses for bytes that are not UTF-8
UNKNOWN, END = "<unk>", "<eos>"
_ENDS = (END, "<|endoftext|>", "</s>", "[SEP]")  # names of the end token in common tokenizers


def count_words(texts: Iterable[str], *, size: int | None = None, at_least: int = 1) -> Tokenizer:
    """Tokenizer of the words of `texts`, separated by whitespace and numbered by decreasing frequency.

    The first two tokens are <unk> for unknown words and <eos> for the end of a line.

    Args:
        size: maximum number of tokens. Default: no limit.
        at_least: minimum number of occurrences of a word. Default: 1.
    """
    tokenizer = Tokenizer(WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = WordLevelTrainer(
        vocab_size=size or 2**31, min_frequency=at_least, special_tokens=[UNKNOWN, END], show_progress=False
    )
    # <unk> and <eos> are removed from the texts (WikiText has many <unk>): counted as words they would leave a gap
    tokenizer.train_from_iterator((text.replace(UNKNOWN, " ").replace(END, " ") for text in texts), trainer)
    if tokenizer.get_vocab_size() <= 2:
        raise InputError(
            f"no word is left: expected data.vocabulary of at least 3, and words that occur at least {at_least} times "
            "(data.min_count)"
        )
    return tokenizer


def read_tokenizer(path: Path) -> Tokenizer:
    """Tokenizer from a tokenizer.json or a folder that holds one; no code is executed."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"there is no tokenizer at {file}; expected a {FILE}, or a folder that holds one")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as wrong:  # the library raises plain Exception
        raise InputError(f"{file} cannot be read as a tokenizer: {wrong}") from wrong
    tokenizer.no_padding()  # padding and truncation are stored in tokenizer.json; this package does its own
    tokenizer.no_truncation()
    if not any(tokenizer.token_to_id(name) is not None for name in _ENDS):
        tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer


def size_of(tokenizer: Tokenizer) -> int:
    """Number of rows of an embedding: one more than the largest token, since some tokenizers have gaps."""
    return 1 + max(tokenizer.get_vocab().values())


def unknown_of(tokenizer: Tokenizer) -> int | None:
    """Token of unknown words; None if there is none."""
    told = json.loads(tokenizer.to_str())["model"].get("unk_token")
    names = [told] if isinstance(told, str) else [UNKNOWN, "[UNK]"]
    return next((number for name in names if (number := tokenizer.token_to_id(name)) is not None), None)


def end_of(tokenizer: Tokenizer) -> int:
    """Token at the end of a text."""
    return next(number for name in _ENDS if (number := tokenizer.token_to_id(name)) is not None)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {number} is {text!r}; expected a string")
        if _HALF_A_LETTER.search(text):
            raise InputError(f"text {number} is not UTF-8")
    return [found.ids for found in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> Tensor:
    """Tokens of all lines in one int32 tensor, each line followed by the end token."""
    end, parts = end_of(tokenizer), [np.empty(0, dtype=np.int32)]
    for first in range(0, len(lines), 10_000):
        found = encode(tokenizer, lines[first : first + 10_000])
        parts.append(np.fromiter((token for line in found for token in (*line, end)), dtype=np.int32))
    return torch.from_numpy(np.concatenate(parts))


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """Tokens of an unfinished text: the end token stands between lines, not after the last. `decode` is the inverse."""
    first, *others = encode(tokenizer, text.split("\n"))
    end = end_of(tokenizer)
    return first + [token for line in others for token in (end, *line)]


def decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Text of tokens; each end token starts a new line."""
    lines: list[list[int]] = [[]]
    end = end_of(tokenizer)
    for token in tokens:
        if token == end:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(tokenizer.decode(line, skip_special_tokens=False) for line in lines)
