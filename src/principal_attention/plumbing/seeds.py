"""Random numbers as a function of where one is, so that nothing has to be remembered to continue a run."""

import random

import numpy as np
import torch

from ..errors import InputError

# The number of each stream is part of every result of a seed: a new stream takes a new number, and none is used again.
STREAMS = {
    "augmentation": 1, "order": 2, "mixing": 3, "initialisation": 4, "step": 5, "noise": 6, "corruption": 7,
    "attack": 8, "null": 9, "bootstrap": 10, "swap": 11, "sampling": 12,
}  # fmt: skip


def words(stream: str, *position: int, count: int = 2) -> list[int]:
    """`count` numbers of 32 bits that depend on the stream and the position alone.

    The length of the position counts too: NumPy takes (1,) and (1, 0) for the same seed.
    """
    if stream not in STREAMS:
        raise InputError(f"there is no random stream {stream!r}; expected one of {', '.join(STREAMS)}")
    found = np.random.SeedSequence([STREAMS[stream], len(position), *position]).generate_state(count)
    return [int(word) for word in found]


def seed_all(stream: str, *position: int) -> None:
    """Set the generators of Python, NumPy and torch."""
    first, second = words(stream, *position)
    random.seed(first)
    np.random.seed(second)
    torch.default_generator.manual_seed(first << 32 | second)  # torch.manual_seed asks every device: 100 times slower
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(first << 32 | second)
