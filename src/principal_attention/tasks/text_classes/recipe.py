"""Recipe keys of text classification: labelled texts and the pretrained model."""

from typing import Any, Literal

from pydantic import Field, model_validator

from ...plumbing.sections import Count
from ...recipes.schema import Data, Recipe


class LabelledData(Data):
    """Labelled texts. The tokenizer is the pretrained model's."""

    text: str | None = Field(None, description="Column of the texts; null: found by its type.")
    label: str | None = Field(None, description="Column of the labels; null: found by its type.")
    test: str | None = Field(
        None, description="Split to evaluate once at the end; null: test, unless it is used for validation."
    )
    length: Count | None = Field(None, description="Tokens read of each text; null: as many as the model can.")
    by_length: bool = Field(True, description="Put texts of similar length into a batch, to save padding.")
    split: bool = Field(False, description="Separate punctuation from words, for models whose tokens are words.")

    @property
    def splits(self) -> dict[str, Any]:
        return super().splits | self.model_dump(include={"test", "text", "label"})


class TextRecipe(Recipe):
    """Text classification, from a pretrained model."""

    task: Literal["texts"] = Field("texts", description="Kind of task: text classification.")
    data: LabelledData = Field(description="Texts to train and validate on.")
    mark: bool = Field(
        False, description="Classify a learned token after the last word instead of the last word (our own models)."
    )

    @model_validator(mode="after")
    def _is_pretrained(self) -> "TextRecipe":
        if self.init_from is None:
            raise ValueError("init_from is missing: expected the run of a language model, or hf:FOLDER")
        return self
