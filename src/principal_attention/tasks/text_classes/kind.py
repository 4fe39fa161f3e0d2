"""The kind `texts`: text classification."""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...adapt.named import ModelRef
from ...language.config import CLASSIFIER
from ..kind import DataChoice, Kind
from ..text_options import LabelledColumns, Showing
from .recipe import TextRecipe
from .suites import SUITES

if TYPE_CHECKING:
    import torch

    from ...evaluation.suite import Suite
    from ..texts import TextInputs
    from .examples import LabelledTexts, TextSubject
    from .training import TextTask


class TextClasses(Kind):
    name, title, unit = "texts", "text classifiers", "texts"
    recipe = TextRecipe
    data_options, analysis_options = LabelledColumns, Showing

    @cached_property
    def suites(self) -> Mapping[str, "Suite"]:
        return {suite.name: suite for suite in SUITES}

    def recognises(self, model: ModelRef) -> bool:
        if model.architecture is not None:
            return model.architecture == CLASSIFIER
        return model.is_transformers and "vocab_size" in model.config and "image_size" not in model.config

    def task(self, recipe: Any, processes: int) -> "TextTask":
        from .training import TextTask

        return TextTask(recipe)

    def subject(self, model: ModelRef, device: "torch.device | str") -> "TextSubject":
        from .examples import TextSubject

        return TextSubject(model, device)

    def open_data(self, subject: Any, model: ModelRef, choice: DataChoice) -> "tuple[LabelledTexts, str]":
        from ..texts import open_texts
        from .examples import LabelledTexts

        split, name = open_texts(model, choice, labelled=True)
        return LabelledTexts(split, subject.classifier.classes, subject.classifier.labels), name

    def inputs(self, model: ModelRef, choice: DataChoice, *, count: int, device: "torch.device | str") -> "TextInputs":
        from ..texts import open_inputs

        return open_inputs(model, choice, count=count, device=device)


KIND = TextClasses()
