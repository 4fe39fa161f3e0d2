"""A recipe of text classes: labelled texts, and the pretrained model that learns to tell them apart."""

from typing import Any, Literal

from pydantic import model_validator

from ...plumbing.sections import Count
from ...recipes.schema import Data, Recipe


class LabelledData(Data):
    """Texts with classes. The tokenizer is the pretrained model's."""

    text: str | None = None
    label: str | None = None
    test: str | None = None  # measured once at the end; `test`, where it is there and not used for validation
    length: Count | None = None  # tokens of a text that are read; as many as the model can
    by_length: bool = True  # train on texts of like length together, so that little is padded
    split: bool = False  # set punctuation apart, for texts that do not (our own models' words are between spaces)

    @property
    def splits(self) -> dict[str, Any]:
        return super().splits | self.model_dump(include={"test", "text", "label"})


class TextRecipe(Recipe):
    """Classes of texts, from a pretrained model."""

    task: Literal["texts"] = "texts"
    data: LabelledData
    mark: bool = False  # our own models: classify a learned vector after the last word instead of the last word

    @model_validator(mode="after")
    def _is_pretrained(self) -> "TextRecipe":
        if self.init_from is None:
            raise ValueError("init_from is missing: expected the run of a language model, or hf:FOLDER")
        return self
