"""Labelled images of an evaluation: their selection, order and class numbers."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ...adapt.named import ModelRef
from ...data.classes import check_label, numbers_of
from ...data.order import stratified
from ...data.splits import HELD
from ...errors import InputError
from ...plumbing.layout import RECIPE
from ...plumbing.processes import worker_options
from ...vision.data import Examples, Split, evaluation_transform, open_split, open_splits, stack
from ...vision.models.classifier import Classifier, View
from ...vision.models.load import load_classifier
from ..kind import DataChoice
from ..run import read_recipe
from .imagenet import wnids
from .recipe import ImageRecipe
from .subject import ImageSubject


@dataclass(frozen=True)
class ImageBatch:
    number: int
    images: Tensor  # in [0, 1]
    labels: Tensor
    indices: list[int]  # numbers of the images in the data

    def first(self, count: int) -> "ImageBatch":
        return replace(self, images=self.images[:count], labels=self.labels[:count], indices=self.indices[:count])

    def to(self, device: torch.device | str) -> "ImageBatch":
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))


class Images:
    """Images of a split, preprocessed but not normalised; the first N of `order` are stratified, for every N."""

    def __init__(self, split: Split, view: View, names: Sequence[str] | None):
        if split.streaming:
            raise InputError("the data are streamed; expected data without streaming for an evaluation")
        self.split = numbered_for(split, view, names)
        see = evaluation_transform(
            view.size, mean=(0.0,) * view.channels, std=(1.0,) * view.channels, crop_pct=view.crop_pct,
            interpolation=view.interpolation,
        )  # fmt: skip
        self.examples = Examples(self.split, see, num_classes=view.num_classes, mode=view.mode)
        self.given = list(
            self.split.rows[self.split.label]
        )  # numbered as in the data, so that the order is the same for every model
        for index, label in enumerate(self.given):
            check_label(label, f"image {index} of split {split.name}")
        renumbered = self.split.renumbered
        self.labels = self.given if renumbered is None else [renumbered[label] for label in self.given]
        self.order = stratified(self.given)

    def fingerprint(self) -> str:
        """Hash of the labels and a few images; differs when the data differ."""
        seen = hashlib.sha256(np.asarray(self.given, dtype=np.int64).tobytes())
        for index in self.order[:4]:
            seen.update(self.split.read(self.split.rows[index], index, "RGB")[0].tobytes())
        return seen.hexdigest()[:8]

    def only(self, wanted: Callable[[int], bool]) -> "Images":
        """The images whose labels are wanted, in the same order."""
        fewer = copy(self)
        fewer.order = [index for index in self.order if wanted(self.labels[index])]
        return fewer

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[ImageBatch]:
        """The batches with these numbers; batch b is `order[b * size : (b + 1) * size]`."""
        chosen = [[int(i) for i in self.order[b * size : (b + 1) * size]] for b in wanted]
        keys = [[(index, index) for index in batch] for batch in chosen]
        loader = DataLoader(self.examples, batch_sampler=keys, collate_fn=stack, **worker_options(workers))
        for number, indices, found in zip(wanted, chosen, loader, strict=True):
            if isinstance(found, InputError):
                raise found
            pixels, labels = found
            yield ImageBatch(number, pixels, labels, indices)


def numbered_for(split: Split, view: View, names: Sequence[str] | None) -> Split:
    """The split with its classes numbered as in the model, matched by name if both have names."""
    if split.classes is None:
        return split
    known = list(names) if names else wnids() if view.num_classes == 1000 else None
    numbers = (-1,) if known is None else numbers_of(split.classes, known)
    if known is not None and -1 not in numbers:
        return replace(split, renumbered=numbers, classes=tuple(known))
    if len(split.classes) != view.num_classes or set(numbers) != {-1}:
        raise InputError(
            f"the data have {len(split.classes)} classes ({', '.join(split.classes[:3])} …) and the model has "
            f"{view.num_classes} with other names; expected data with classes of the model"
        )
    return split


def with_labels(split: Split, view: View, names: Sequence[str] | None, teacher: Callable[[], Classifier]) -> Split:
    """The split itself if its labels are classes of the model; else labelled with the teacher's answers to its images.

    The name of a split that was labelled so names the teacher.
    """
    if split.label is not None:
        try:
            numbers = numbered_for(split, view, names)
            largest = max(numbers.rows[split.label], default=0)
            if split.classes is not None or (isinstance(largest, int) and largest < view.num_classes):
                return split
        except InputError:
            pass
    known = teacher()
    see = evaluation_transform(view.size, mean=known.view.mean, std=known.view.std, crop_pct=view.crop_pct,
                               interpolation=view.interpolation)  # fmt: skip
    examples = Examples(replace(split, label=None), see, num_classes=view.num_classes, mode=view.mode)
    keys = [[(index, index) for index in range(first, min(first + 50, len(examples)))]
            for first in range(0, len(examples), 50)]  # fmt: skip
    answers: list[int] = []
    for found in DataLoader(examples, batch_sampler=keys, collate_fn=stack):
        if isinstance(found, InputError):
            raise found
        with torch.inference_mode():
            answers += known.model(found[0]).argmax(-1).tolist()
    return replace(split.answered(answers, known.labels), name=f"{split.name} labelled by {known.name}")


def open_images(subject: ImageSubject, model: ModelRef, choice: DataChoice) -> tuple[Images, str]:
    """The evaluation images, and their name in records. Default for a run: its held-out images."""
    if choice.source is not None:
        found, source = open_split(choice.source, choice.split), choice.source
    else:
        if not (model.folder / RECIPE).is_file():
            raise InputError("--data is missing: expected a hub name, a parquet file or folder, or an image folder")
        recipe = read_recipe(model.folder)
        if not isinstance(recipe, ImageRecipe):
            raise InputError(f"the recipe in {model.given} does not train on images; name images with --data")
        source, asked = recipe.data.source, recipe.data.splits | {"streaming": False}
        if choice.split is None or (choice.split == HELD and recipe.data.holdout):
            _, found = open_splits(source, labelled=recipe.teacher_model is None, **asked)
            if recipe.teacher_model is not None:
                name = recipe.teacher_model
                found = with_labels(found, subject.view, subject.classifier.labels, lambda: load_classifier(name))
        else:
            one = {key: asked[key] for key in ("subset", "image", "label")}
            found = open_split(source, choice.split, **one)
    return Images(found, subject.view, subject.classifier.labels), f"{Path(source).name}/{found.name}"
