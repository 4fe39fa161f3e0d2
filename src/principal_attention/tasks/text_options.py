"""Options that kinds which read text share."""

from pydantic import Field

from ..language.config import SWAP_RATE
from ..plumbing.sections import Count, Section


class Columns(Section):
    column: str | None = Field(None, description="Column of the texts, where the data have several.")


class LabelledColumns(Columns):
    label: str | None = Field(None, description="Column of the texts' classes, where the data have several.")


class Showing(Columns):
    """Of `principal analyze`."""

    pack: Count | None = Field(None, description="Join the texts to pieces of N tokens. Default: each text by itself.")


class Swapping(Section):
    swap_rate: float = Field(SWAP_RATE, gt=0, le=1, description="Share of the words that are swapped.")
