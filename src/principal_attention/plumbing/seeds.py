"""Random numbers as a function of stream, seed and position, so that a run resumes without stored generator states."""

import random

import numpy as np
import torch

from ..errors import InputError

# Numbers of the streams. Results depend on them: a new stream gets a new number, and no number is reused.
STREAMS = {
    "augmentation": 1, "order": 2, "mixing": 3, "initialisation": 4, "step": 5, "noise": 6, "corruption": 7,
    "attack": 8, "null": 9, "bootstrap": 10, "swap": 11, "sampling": 12, "place": 13, "patch": 14,
}  # fmt: skip


def words(stream: str, *position: int, count: int = 2) -> list[int]:
    """`count` random 32-bit integers, which depend only on the stream and the position.

    The length of the position is part of the seed, since NumPy treats (1,) and (1, 0) as the same seed.
    """
    if stream not in STREAMS:
        raise InputError(f"there is no random stream {stream!r}; expected one of {', '.join(STREAMS)}")
    found = np.random.SeedSequence([STREAMS[stream], len(position), *position]).generate_state(count)
    return [int(word) for word in found]


def seed_all(stream: str, *position: int) -> None:
    """Seed the global generators of Python, NumPy and torch."""
    first, second = words(stream, *position)
    random.seed(first)
    np.random.seed(second)
    torch.default_generator.manual_seed(first << 32 | second)  # torch.manual_seed seeds every device, 100 times slower
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(first << 32 | second)
