"""The kind `images`: image classification."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...adapt.named import ModelRef
from ..kind import DataChoice, Kind, Threat
from .recipe import ImageRecipe
from .suites import SUITES

if TYPE_CHECKING:
    import torch

    from ...evaluation.suite import Suite
    from .analysis import ImageInputs
    from .examples import Images
    from .subject import ImageSubject
    from .training import ImageTask


class ImageClasses(Kind):
    name, title, unit = "images", "image classifiers", "images"
    recipe = ImageRecipe

    @cached_property
    def suites(self) -> Mapping[str, "Suite"]:
        return {suite.name: suite for suite in SUITES}

    def recognises(self, model: ModelRef) -> bool:
        return model.is_timm or (
            model.is_transformers and ("image_size" in model.config or "vocab_size" not in model.config)
        )

    def task(self, recipe: Any, processes: int) -> "ImageTask":
        from .training import ImageTask

        return ImageTask(recipe, processes)

    def subject(self, model: ModelRef, device: "torch.device | str") -> "ImageSubject":
        from .subject import ImageSubject

        subject = ImageSubject(model, device)
        subject.check_whole()
        return subject

    def open_data(self, subject: Any, model: ModelRef, choice: DataChoice) -> "tuple[Images, str]":
        from .examples import open_images

        return open_images(subject, model, choice)

    def inputs(self, model: ModelRef, choice: DataChoice, *, count: int, device: "torch.device | str") -> "ImageInputs":
        from .analysis import ImageInputs
        from .subject import ImageSubject

        subject = ImageSubject(model, device)
        images, data = self.open_data(subject, model, choice)
        return ImageInputs(subject, images, data, count)

    def threats(self) -> Mapping[str, Threat]:
        from .threats import THREATS

        return THREATS

    def hardening_data(self, source: str, split: str | None, holdout: int | None) -> dict[str, Any]:
        from .threats import data_keys

        return data_keys(source, split, holdout)

    def listings(self) -> Mapping[str, Callable[[], Mapping[str, str]]]:
        return {"models": _models, "attacks": _attacks, "corruptions": _corruptions}


def _models() -> dict[str, str]:
    from ...vision.models import NAMES

    return NAMES


def _attacks() -> dict[str, str]:
    from ...vision.attacks import ATTACKS

    return {name: attack.help for name, attack in ATTACKS.items()}


def _corruptions() -> dict[str, str]:
    from ...vision.corruptions.parameters import CORRUPTIONS

    return CORRUPTIONS


KIND = ImageClasses()
