"""Random numbers as a function of where one is, so that nothing has to be remembered to continue a run."""

import random

import numpy as np
import torch

_USES = (
    "augmentation", "order", "mixing", "model", "noise", "corruption", "attack", "null", "bootstrap", "swap",
    "sampling",
)  # fmt: skip


def words(use: str, *position: int, count: int = 2) -> list[int]:
    """`count` numbers of 32 bits that depend on the use and the position alone."""
    return [int(word) for word in np.random.SeedSequence([_USES.index(use), *position]).generate_state(count)]


def seed_all(use: str, *position: int) -> None:
    """Set the generators of Python, NumPy and torch."""
    first, second = words(use, *position)
    random.seed(first)
    np.random.seed(second)
    torch.default_generator.manual_seed(first << 32 | second)  # torch.manual_seed asks every device: 100 times slower
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(first << 32 | second)
