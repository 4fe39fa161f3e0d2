"""Recipe keys of language models: the texts and their vocabulary."""

from typing import Any, Literal

from pydantic import Field, model_validator

from ...plumbing.sections import Count
from ...recipes.schema import Data, Recipe

WORDS = "words"


class TextData(Data):
    """Texts of a language model, one line per row; all rows of a split are joined."""

    text: str | None = Field(None, description="Column of the texts; null: found by its type.")
    tokenizer: str = Field(
        WORDS, description="words: every word of the training texts is a token; or the path of a tokenizer.json."
    )
    vocabulary: Count | None = Field(None, description="Largest number of words to keep; null: all.")
    min_count: Count = Field(1, description="Smallest number of occurrences of a word to keep.")

    @property
    def paths(self) -> tuple[str, ...]:
        return super().paths if self.tokenizer == WORDS else (*super().paths, "tokenizer")

    @property
    def splits(self) -> dict[str, Any]:
        return super().splits | {"text": self.text}


class LanguageRecipe(Recipe):
    """Language modelling: the next token of a text."""

    task: Literal["language"] = Field("language", description="Kind of task: language modelling.")
    data: TextData = Field(description="Texts to train and validate on.")

    @model_validator(mode="after")
    def _has_one_vocabulary(self) -> "LanguageRecipe":
        given = self.data
        if self.init_from is not None and (given.tokenizer != WORDS or given.vocabulary):
            raise ValueError("a pretrained model keeps its vocabulary: drop data.tokenizer and data.vocabulary")
        if given.tokenizer != WORDS and given.vocabulary:
            raise ValueError("data.vocabulary is for data.tokenizer=words, and data.tokenizer names a file: drop one")
        return self
