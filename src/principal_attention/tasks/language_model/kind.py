"""The kind `language`: language models."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...adapt.named import ModelRef
from ...language.config import LANGUAGE, NAMES, LanguageConfig
from ..kind import DataChoice, Kind
from ..text_options import Columns, Showing
from .recipe import LanguageRecipe
from .suites import CHUNK, SUITES

if TYPE_CHECKING:
    import torch

    from ...evaluation.suite import Suite
    from ...language.texts import Texts
    from ..texts import TextInputs
    from .stream import LanguageSubject
    from .training import LanguageTask


class LanguageModels(Kind):
    name, title, unit = "language", "language models", "tokens"
    recipe = LanguageRecipe
    default_suites, aliases = ("perplexity",), {"clean": "perplexity"}
    data_options, analysis_options = Columns, Showing
    chunk = CHUNK

    @cached_property
    def suites(self) -> Mapping[str, "Suite"]:
        return {suite.name: suite for suite in SUITES}

    def recognises(self, model: ModelRef) -> bool:
        return model.architecture == LANGUAGE

    def task(self, recipe: Any, processes: int) -> "LanguageTask":
        from .training import LanguageTask

        return LanguageTask(recipe)

    def subject(self, model: ModelRef, device: "torch.device | str") -> "LanguageSubject":
        from .stream import LanguageSubject

        return LanguageSubject(model, device)

    def open_data(self, subject: Any, model: ModelRef, choice: DataChoice) -> "tuple[Texts, str]":
        from ..texts import open_texts

        return open_texts(model, choice, labelled=False)

    def inputs(self, model: ModelRef, choice: DataChoice, *, count: int, device: "torch.device | str") -> "TextInputs":
        from ..texts import open_inputs

        return open_inputs(model, choice, count=count, device=device)

    def listings(self) -> Mapping[str, Callable[[], Mapping[str, str]]]:
        return {"models": _models}

    def commands(self) -> list[Callable[..., None]]:
        from .generate import generate

        return [generate]


def _models() -> dict[str, str]:
    return {name: _line(LanguageConfig(vocab_size=1, **options)) for name, options in NAMES.items()}


def _line(config: LanguageConfig) -> str:
    experts = f" with {config.experts} experts" if config.experts else ""
    attention = "symmetric" if config.attention == "symmetric" else "ordinary"
    return f"Language model{experts}, {config.depth} layers of {config.embed_dim}, {attention} attention."


KIND = LanguageModels()
