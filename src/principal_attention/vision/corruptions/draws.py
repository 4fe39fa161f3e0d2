"""Random numbers of each image, which depend only on the seed, its index, the corruption and the severity."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from ...plumbing.seeds import words


class Draws:
    """Random numbers from one generator per image, drawn on the CPU, so that they are the same for every device."""

    def __init__(self, seed: int, indices: Sequence[int], kind: str, severity: int, device: torch.device):
        self.device = device
        number = crc32(kind.encode())  # hash of the name, so that the order of the corruptions does not matter
        self.generators = [
            torch.Generator().manual_seed(first << 32 | second)
            for first, second in (words("corruption", seed, index, number, severity) for index in indices)
        ]

    def _fill(self, shape: Sequence[int], fill: Callable[[Tensor, torch.Generator], Any]) -> Tensor:
        drawn = torch.empty(len(self.generators), *shape)
        for each, generator in zip(drawn, self.generators, strict=True):
            fill(each, generator)
        return drawn.to(self.device)

    def normal(self, *shape: int) -> Tensor:
        return self._fill(shape, lambda each, generator: each.normal_(generator=generator))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return self._fill(shape, lambda each, generator: each.uniform_(low, high, generator=generator))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Integers from `low` to `high` − 1."""
        return self._fill(shape, lambda each, generator: each.random_(low, high, generator=generator)).long()

    def poisson(self, rates: Tensor) -> Tensor:
        """Poisson random numbers with these rates, one image per thread, since sampling is slow and single-threaded."""
        if not self.generators:
            return rates
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            drawn = list(threads.map(torch.poisson, rates.cpu(), self.generators))
        return torch.stack(drawn).to(self.device)
