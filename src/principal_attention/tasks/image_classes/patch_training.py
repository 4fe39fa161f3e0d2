"""The universal patch of a model: learnt once, saved as PNG, and read again."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...errors import InputError
from ...evaluation.outcomes import key_of
from ...plumbing.files import sync, writing
from ...plumbing.layout import PATCH
from ...vision.attacks.places import random_places
from ...vision.attacks.universal import universal_patch
from ...vision.data import open_split
from .examples import Images
from .patch_cases import Square
from .subject import ImageSubject


@dataclass(frozen=True)
class TrainingImages:
    """Images that a universal patch is learnt on; none of them is evaluated."""

    name: str
    images: Images
    indices: Sequence[int]

    @property
    def pinned(self) -> dict[str, Any]:
        return {
            "universal_data": self.name,
            "universal_id": self.images.fingerprint(),
            "universal_images": len(self.indices),
        }

    def read(self) -> tuple[Tensor, Tensor]:
        items = self.images.examples.__getitems__([(index, index) for index in self.indices])
        for item in items:
            if isinstance(item, InputError):
                raise item
        pixels, labels = zip(*items, strict=True)
        return torch.stack(pixels), torch.tensor(labels)


def training_images(
    subject: ImageSubject, source: str, split: str | None, count: int, evaluated: Images, n: int
) -> TrainingImages:
    """`count` images of a split. If it is the split under evaluation, they are those that are evaluated last."""
    images = Images(open_split(source, split), subject.view, subject.classifier.labels)
    name = f"{Path(source).name}/{images.split.name}"
    same = images.fingerprint() == evaluated.fingerprint() and len(images) == len(evaluated)
    available = len(images) - n if same else len(images)
    if count > available:
        rest = f", of which {n} are evaluated; lower --limit or --universal-images" if same else "; lower it"
        raise InputError(f"--universal-images is {count} and {name} has {len(images)} images{rest}")
    order = [int(index) for index in images.order]
    return TrainingImages(name, images, order[-count:] if same else order[:count])


class UniversalPatch:
    """The patch as a function of the model. With a folder, the patch is saved there and read from there."""

    def __init__(self, square: Square, steps: int, training: TrainingImages, folder: Path | None):
        self.square, self.steps, self.training = square, steps, training
        self.pinned: Mapping[str, Any] = {"steps": steps, **training.pinned}
        digest = hashlib.sha256(key_of({**square.pinned, **self.pinned}).encode()).hexdigest()[:8]
        self.path = None if folder is None else folder / PATCH.format(square.size, digest)
        self._found: Tensor | None = None

    def __call__(self, subject: ImageSubject) -> Tensor:
        if self._found is None and (self.path is None or not self.path.exists()):
            learnt = self._learn(subject)
            self._found = learnt
            if self.path is not None and not self.path.exists():  # another process may have been faster
                _save(learnt, self.path)
        if self.path is not None:
            self._found = _read(self.path, subject.view.channels, self.square.size)
        assert self._found is not None
        return self._found

    def _learn(self, subject: ImageSubject) -> Tensor:
        images, labels = self.training.read()
        device = next(subject.network.parameters()).device

        def places(chosen: list[int], step: int) -> Tensor:
            height, width = images.shape[-2:]
            if self.square.corner is not None:
                return torch.tensor(self.square.corner).expand(len(chosen), 2)
            # stream numbers beyond any index, so that these places differ from those of the evaluation
            moved = [2**32 + step * len(images) + i for i in chosen]
            return random_places(self.square.size, height, width, indices=moved, seed=self.square.seed)[:, 0]

        return universal_patch(
            subject.on_pixels, images.to(device), labels.to(device), places=places, size=self.square.size,
            steps=self.steps, seed=self.square.seed,
        ).cpu()  # fmt: skip


def _save(patch: Tensor, path: Path) -> None:
    pixels = patch.mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(partial, format="PNG")
        sync(partial)
        os.replace(partial, path)


def _read(path: Path, channels: int, size: int) -> Tensor:
    try:
        with Image.open(path, formats=("PNG",)) as image:
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except OSError as wrong:
        raise InputError(f"{path} is damaged ({wrong}); remove it") from wrong
    if pixels.shape[:2] != (size, size):
        raise InputError(f"{path} is damaged: it has {pixels.shape[0]}×{pixels.shape[1]} pixels; remove it")
    return torch.from_numpy(pixels.reshape(size, size, channels).copy()).permute(2, 0, 1).float().div(255)
