"""A recipe of a language model: its texts and its vocabulary."""

from typing import Any, Literal

from pydantic import model_validator

from ...plumbing.sections import Count
from ...recipes.schema import Data, Recipe

WORDS = "words"


class TextData(Data):
    """Texts for a language model, a line a row; all of a split are joined."""

    text: str | None = None  # the column
    tokenizer: str = WORDS  # every word of the training texts, or the path of a tokenizer.json; a run keeps its own
    vocabulary: Count | None = None  # keep only so many words
    min_count: Count = 1  # keep only words that come so often; not asked where there is a vocabulary already

    @property
    def paths(self) -> tuple[str, ...]:
        return super().paths if self.tokenizer == WORDS else (*super().paths, "tokenizer")

    @property
    def splits(self) -> dict[str, Any]:
        return super().splits | {"text": self.text}


class LanguageRecipe(Recipe):
    """The next token of a text."""

    task: Literal["language"] = "language"
    data: TextData

    @model_validator(mode="after")
    def _has_one_vocabulary(self) -> "LanguageRecipe":
        given = self.data
        if self.init_from is not None and (given.tokenizer != WORDS or given.vocabulary):
            raise ValueError("a pretrained model keeps its vocabulary: drop data.tokenizer and data.vocabulary")
        if given.tokenizer != WORDS and given.vocabulary:
            raise ValueError("data.vocabulary counts words, and data.tokenizer names a file: drop one")
        return self
