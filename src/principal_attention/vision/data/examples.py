"""Work of a data loader's process: read a row, augment the image with its own random numbers, and stack a batch.

For a broken image or a wrong label the `InputError` is returned instead of the batch: raised in the loader's process,
it would reach the user as a traceback of that process.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...data.classes import check_label
from ...errors import InputError
from ...plumbing.seeds import seed_all
from .sources import Split

KEPT_BYTES = 2**28  # largest data set, in bytes of its tensors, that is kept in memory


class Examples(Dataset[Any]):
    """Data set of image tensors and labels. Example (index, draw) depends only on these two numbers and the seed.

    `seed=None`: the transform draws no random numbers; a data set of at most `KEPT_BYTES` is then kept in memory.
    """

    def __init__(self, split: Split, transform: Any, *, num_classes: int, mode: str = "RGB", seed: int | None = None):
        self.split, self.transform, self.num_classes, self.mode, self.seed = split, transform, num_classes, mode, seed
        self._kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.split.rows)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int] | InputError:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: list[tuple[int, int]]) -> list[tuple[Tensor, int] | InputError]:
        if self.seed is None and all(index in self._kept for index, _ in keys):
            return [self._kept[index] for index, _ in keys]
        columns = self.split.rows[[index for index, _ in keys]]  # one access is much faster than one per row
        rows = ({name: column[i] for name, column in columns.items()} for i in range(len(keys)))
        items = [self.prepare(row, index, draw) for row, (index, draw) in zip(rows, keys, strict=True)]
        if self.seed is None and self.fits(items[0]):
            self._kept |= {index: item for (index, _), item in zip(keys, items, strict=True)}
        return items

    def fits(self, item: Any) -> bool:
        return not isinstance(item, InputError) and item[0].nbytes * len(self) <= KEPT_BYTES

    def prepare(self, row: dict[str, Any], number: int, draw: int) -> tuple[Tensor, int] | InputError:
        try:
            image, label = self.split.read(row, number, self.mode)
            if self.split.label is not None:
                check_label(label, f"image {number} of split {self.split.name}", self.num_classes)
            if self.seed is not None:
                seed_all("augmentation", self.seed, draw)
            return self.transform(image), label
        except InputError as wrong:
            return wrong
        except Exception as wrong:  # an augmentation that cannot take this image
            return InputError(f"image {number} of split {self.split.name} cannot be prepared: {wrong}")


def stack(items: list[Any]) -> tuple[Tensor, Tensor] | InputError:
    """Batch of images and labels, or the first `InputError` among the examples."""
    for item in items:
        if isinstance(item, InputError):
            return item
    images, labels = zip(*items, strict=True)
    return torch.stack(images), torch.tensor(labels)
