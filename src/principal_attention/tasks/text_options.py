"""Command-line options shared by the kinds that read text."""

from pydantic import Field

from ..language.config import SWAP_RATE
from ..plumbing.sections import Count, Section


class Columns(Section):
    column: str | None = Field(None, description="Column of the texts, if there are several text columns.")


class LabelledColumns(Columns):
    label: str | None = Field(None, description="Column of the classes, if there are several candidates.")


class Showing(Columns):
    """Options of `principal analyze`."""

    pack: Count | None = Field(
        None, description="Join the texts into pieces of N tokens. Default: each text separately."
    )


class Swapping(Section):
    swap_rate: float = Field(SWAP_RATE, gt=0, le=1, description="Share of the words that are swapped.")
