"""Training task of image classification."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from timm.data import Mixup
from torch import Tensor, nn

from ...adapt.blocks import freeze_after
from ...adapt.named import ModelRef
from ...analysis.track import EXAMPLES, KernelPCATracker
from ...errors import InputError
from ...plumbing.processes import Place, raise_together, spare_workers
from ...plumbing.records import records_of
from ...plumbing.seeds import seed_all, words
from ...training.batches import BatchPlan, evaluation_loader, training_loader
from ...training.engine import Task
from ...vision.data import Examples, evaluation_transform, open_splits, stack, training_transform
from ...vision.data.sources import class_count
from ...vision.models.classifier import Classifier, View
from ...vision.models.load import build_classifier, load_classifier
from ...vision.pixels import OnPixels
from ..classes import Accuracy, count
from .examples import numbered_for, with_labels
from .objective import Objective
from .recipe import ImageRecipe


class ImageTask(Task):
    def __init__(self, recipe: ImageRecipe, processes: int = 1):
        data, augment, training = recipe.data, recipe.augment, recipe.training
        self.recipe = recipe
        self.workers = spare_workers(processes) if training.workers is None else training.workers
        train, validation = open_splits(data.source, labelled=recipe.teacher_model is None, **data.splits)
        length = data.length or train.length
        if length is None:
            raise InputError(f"the stream {data.source} has no known number of images: set data.length")
        if data.length and not train.streaming:
            raise InputError(
                f"data.length is {data.length}, which is for streams; use data.limit to train on fewer images"
            )
        teacher = self._teacher()
        seed_all("initialisation", recipe.seed)
        self.classifier: Classifier = build_classifier(
            name=recipe.model.name if recipe.model else None, options=recipe.model.options if recipe.model else None,
            init_from=recipe.init_from,
            num_classes=lambda: teacher.view.num_classes if teacher else class_count((train, validation)),
            image_size=data.image_size, mean=data.mean, std=data.std,
            change=recipe.robustify.put_into if recipe.robustify else None,
        )  # fmt: skip
        labels = train.classes if teacher is None else self.classifier.labels or teacher.labels
        self.classifier = replace(self.classifier, labels=labels)
        self.model: nn.Module = self.classifier.model
        view = self.classifier.view
        look: dict[str, Any] = dict(mean=view.mean, std=view.std)
        learn = training_transform(
            view.size,
            **look,
            **augment.model_dump(exclude={"mixup", "cutmix", "repeats"}),
        )
        see = evaluation_transform(view.size, **look, crop_pct=view.crop_pct, interpolation=view.interpolation)
        common: dict[str, Any] = dict(num_classes=view.num_classes, mode=view.mode)
        if teacher is not None:
            _check_same_images(view, teacher)
            train = replace(train, label=None)
            validation = numbered_for(with_labels(validation, view, labels, lambda: teacher), view, labels)
        self.still: list[nn.Module] = []  # frozen modules that stay in evaluation mode
        if recipe.trained_share < 1:
            self.still = freeze_after(self.model, recipe.trained_share)
        self.start = self._interpolated_from()
        self.objective = Objective(recipe, self.model, view, _answering(teacher))
        random = (
            augment.crop != "none" or augment.flip or augment.rand_augment or augment.color_jitter or augment.erasing
        )
        self.examples = Examples(train, learn, seed=recipe.seed if random else None, **common)
        self.held = Examples(validation, see, **common)
        self.plan = BatchPlan(length, training.batch_size, recipe.seed, augment.repeats, shuffle=not train.streaming)
        self.mixup = None
        if augment.mixup or augment.cutmix:
            self.mixup = Mixup(
                augment.mixup, augment.cutmix, label_smoothing=training.smoothing, num_classes=view.num_classes
            )
        self.last: Accuracy | None = None
        if recipe.track:
            self.track = KernelPCATracker(*self._watched_images())

    def _teacher(self) -> Classifier | None:
        name = self.recipe.teacher_model
        if name is None:
            return None
        ref = ModelRef.of(name)
        ref.check_finished()
        made = load_classifier(ref)
        if made.missing:
            raise InputError(f"the teacher {name} has no weights for {made.missing[-1]}; fine-tune it first")
        made.model.requires_grad_(False)
        return made

    def _interpolated_from(self) -> dict[str, Tensor] | None:
        """The weights before training, if the saved weights are to lie between them and the trained ones."""
        if self.recipe.interpolation == 1:
            return None
        if self.classifier.missing:
            raise InputError(
                f"interpolation is {self.recipe.interpolation:g}, and {self.recipe.init_from} has no weights for "
                f"{self.classifier.missing[-1]} to start from; expected a model with the same classes"
            )
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _between(self, model: nn.Module) -> nn.Module:
        """The model with the weights to save."""
        if self.start is None:
            return model
        made = copy.deepcopy(model)
        share = self.recipe.interpolation
        with torch.no_grad():
            for name, value in made.state_dict().items():
                if value.is_floating_point():
                    value.copy_(torch.lerp(self.start[name].to(value), value, share))
        return made

    def _watched_images(self) -> tuple[Callable[[nn.Module], object], int]:
        """Function that passes a fixed batch of held-out images to a model, and the size of the batch."""
        found = stack([self.held[index, index] for index in range(min(EXAMPLES, len(self.held)))])
        if isinstance(found, InputError):
            raise found
        images = found[0]
        return lambda model: model(images.to(next(model.parameters()).device)), len(images)

    def batches(self, steps: range, place: Place) -> Iterator[Any]:
        parts = place.world * self.recipe.training.accumulate
        if self.mixup is not None and self.plan.batch_size % (2 * parts):
            raise InputError(
                f"training.batch_size is {self.plan.batch_size}; mixup and cutmix pair images, "
                f"so expected a multiple of {2 * parts}"
            )
        return training_loader(
            self.examples, self.plan, steps, place=place, accumulate=self.recipe.training.accumulate,
            workers=self.workers, stack=stack, shuffle_buffer=self.recipe.data.shuffle_buffer,
            pin=torch.cuda.is_available(),
        )  # fmt: skip

    def loss(self, model: nn.Module, batch: Any, step: int) -> Tensor:
        for each in self.still:
            each.eval()
        device = next(model.parameters()).device
        images, labels = (t.to(device, non_blocking=True) for t in batch)
        if self.mixup is None:
            return self.objective.loss(model, images, labels, smoothing=self.recipe.training.smoothing)
        np.random.seed(words("mixing", self.recipe.seed, step)[0])  # the same draw in every process
        images, targets = self.mixup(images, labels.clamp(min=0))  # −1 without labels, whose mixture nobody uses
        return self.objective.loss(model, images, targets)

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        place = Place(accelerator.process_index, accelerator.num_processes)
        batches = evaluation_loader(
            self.held, batch_size=max(1, self.plan.batch_size // place.world), place=place, workers=self.workers,
            stack=stack,
        )  # fmt: skip
        problem, counts = None, torch.zeros(4)
        try:
            counts = count(self._between(model), batches, device=accelerator.device)
        except InputError as wrong:
            problem = wrong
        raise_together(problem, accelerator)
        self.last = Accuracy.of(accelerator.reduce(counts))
        return self.last.metrics()

    def finish(self, model: nn.Module, accelerator: Accelerator) -> list[dict[str, Any]]:
        assert self.last is not None
        return records_of(
            self.recipe.name, "clean", self.held.split.name, self.last.metrics(), n=self.last.n, seed=self.recipe.seed
        )

    def save(self, folder: Path, model: nn.Module) -> None:
        self.classifier.save(folder, self._between(model))

    def headline(self, metrics: dict[str, float]) -> str:
        return f"top-1 {metrics['top1']:.2%}"


def _check_same_images(view: View, teacher: Classifier) -> None:
    for what in ("size", "channels", "num_classes"):
        own, other = getattr(view, what), getattr(teacher.view, what)
        if own != other:
            raise InputError(
                f"the teacher {teacher.name} has {what} {other} and the model has {own}; expected the same"
            )


def _answering(teacher: Classifier | None) -> OnPixels | None:
    return None if teacher is None else OnPixels(teacher.model, teacher.view.mean, teacher.view.std)
