"""What a loading process does: read a row, augment it with random numbers of its own, and stack a batch.

A broken image or a wrong label comes back in the place of the batch: raised inside a loading process it would reach the
user as that process's traceback.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..._random import seed_all
from ...errors import InputError
from .sources import Split


class Examples(Dataset[Any]):
    """A split as tensors: example (index, draw) depends on these two and the seed alone."""

    def __init__(self, split: Split, transform: Any, *, num_classes: int, mode: str = "RGB", seed: int = 0):
        self.split, self.transform, self.num_classes, self.mode, self.seed = split, transform, num_classes, mode, seed

    def __len__(self) -> int:
        return len(self.split.rows)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int] | InputError:
        index, draw = key
        return self.prepare(self.split.rows[index], index, draw)

    def prepare(self, row: dict[str, Any], number: int, draw: int) -> tuple[Tensor, int] | InputError:
        try:
            image, label = self.split.read(row, number, self.mode)
        except InputError as wrong:
            return wrong
        if not 0 <= label < self.num_classes:
            return InputError(
                f"the label of image {number} of split {self.split.name} is {label}; "
                f"the model has classes 0 to {self.num_classes - 1}"
            )
        seed_all("augmentation", self.seed, draw)
        return self.transform(image), label


def stack(items: list[Any]) -> tuple[Tensor, Tensor] | InputError:
    for item in items:
        if isinstance(item, InputError):
            return item
    images, labels = zip(*items, strict=True)
    return torch.stack(images), torch.tensor(labels)
