"""Words and sub-words to numbers: a vocabulary counted from texts, or any `tokenizer.json`."""

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
_HALF_A_LETTER = re.compile("[\ud800-\udfff]")  # what Python makes of bytes that are no UTF-8
UNKNOWN, END = "<unk>", "<eos>"
_ENDS = (END, "<|endoftext|>", "</s>", "[SEP]")  # what tokenizers call the end of a text


def count_words(texts: Iterable[str], *, size: int | None = None, at_least: int = 1) -> Tokenizer:
    """Every word between spaces that comes `at_least` so often, numbered from the most frequent on, up to `size`.

    Before them are <unk> for all others and <eos> for the end of a line.
    """
    tokenizer = Tokenizer(WordLevel(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = WordLevelTrainer(
        vocab_size=size or 2**31, min_frequency=at_least, special_tokens=[UNKNOWN, END], show_progress=False
    )
    # the marks themselves are no words, though WikiText is full of <unk>: counted twice they would leave a gap
    tokenizer.train_from_iterator((text.replace(UNKNOWN, " ").replace(END, " ") for text in texts), trainer)
    if tokenizer.get_vocab_size() <= 2:
        raise InputError(
            f"no word is left: expected data.vocabulary of at least 3, and words that come {at_least} times "
            "(data.min_count)"
        )
    return tokenizer


def read_tokenizer(path: Path) -> Tokenizer:
    """From a tokenizer.json, or a folder that holds one; it is data, and nothing in it is executed."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"there is no tokenizer at {file}; expected a {FILE}, or a folder that holds one")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as wrong:  # the library raises plain Exception
        raise InputError(f"{file} cannot be read as a tokenizer: {wrong}") from wrong
    tokenizer.no_padding()  # what a model's own preparation asked for
    tokenizer.no_truncation()
    if not any(tokenizer.token_to_id(name) is not None for name in _ENDS):
        tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer


def size_of(tokenizer: Tokenizer) -> int:
    """How many rows an embedding needs: one more than the largest number, since some tokenizers leave gaps."""
    return 1 + max(tokenizer.get_vocab().values())


def unknown_of(tokenizer: Tokenizer) -> int | None:
    """The number that stands for all other words, where there is one."""
    told = json.loads(tokenizer.to_str())["model"].get("unk_token")
    names = [told] if isinstance(told, str) else [UNKNOWN, "[UNK]"]
    return next((number for name in names if (number := tokenizer.token_to_id(name)) is not None), None)


def end_of(tokenizer: Tokenizer) -> int:
    """The number of the token that ends a text."""
    return next(number for name in _ENDS if (number := tokenizer.token_to_id(name)) is not None)


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {number} is {text!r}; expected a string")
        if _HALF_A_LETTER.search(text):
            raise InputError(f"text {number} is not UTF-8")
    return [found.ids for found in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> Tensor:
    """All lines one after the other, each with its end, as one row of numbers; four bytes each, for long texts."""
    end, parts = end_of(tokenizer), [np.empty(0, dtype=np.int32)]
    for first in range(0, len(lines), 10_000):
        found = encode(tokenizer, lines[first : first + 10_000])
        parts.append(np.fromiter((token for line in found for token in (*line, end)), dtype=np.int32))
    return torch.from_numpy(np.concatenate(parts))


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """A text that is not ended yet: the end of a line stands between its lines alone. `decode` turns it back."""
    first, *others = encode(tokenizer, text.split("\n"))
    end = end_of(tokenizer)
    return first + [token for line in others for token in (end, *line)]


def decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Text again, a line for each end."""
    lines: list[list[int]] = [[]]
    end = end_of(tokenizer)
    for token in tokens:
        if token == end:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(tokenizer.decode(line, skip_special_tokens=False) for line in lines)
