"""Images to calibrate token pursuit on, read as the model takes them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor

from ...adapt.calibration import BATCH
from ...errors import InputError
from ..data import Examples, Split, evaluation_transform, open_split, stack
from .classifier import View


class CalibrationImages:
    """Batches of normalised images of a source; labels are not read. The images are the same in every iteration.

    Args:
        view: format of the model's images.
        source: data set, as for `--data`.
        split: split of the source. Default: train, else as for `--split`.
        count: number of images, the first of a random order that depends on the number of images only.
    """

    def __init__(self, view: View, source: str, split: str | None, count: int):
        found = _open(source, split)
        if found.length is None or found.length < count:
            raise InputError(
                f"calibrate_images is {count} and split {found.name} of {source} has {found.length} images"
            )
        chosen = np.random.default_rng(0).permutation(found.length)[:count]
        see = evaluation_transform(
            view.size, mean=view.mean, std=view.std, crop_pct=view.crop_pct, interpolation=view.interpolation
        )
        mode = "L" if view.channels == 1 else "RGB"
        self.examples = Examples(found.chosen(sorted(map(int, chosen))), see, num_classes=view.num_classes, mode=mode)

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, len(self.examples), BATCH):
            numbers = range(start, min(start + BATCH, len(self.examples)))
            batch = stack(self.examples.__getitems__([(number, number) for number in numbers]))
            if isinstance(batch, InputError):
                raise batch
            yield batch[0]


def _open(source: str, split: str | None) -> Split:
    if split is None:
        try:
            return _unlabelled(source, "train")
        except InputError:  # there is no split train, or no such source
            pass
    return _unlabelled(source, split)


def _unlabelled(source: str, split: str | None) -> Split:
    return replace(open_split(source, split, labelled=False), label=None)
