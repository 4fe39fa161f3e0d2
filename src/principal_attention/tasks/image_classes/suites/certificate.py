"""Suite of certificates against patches: answers that no contents of a small square can change."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from ....evaluation.suite import Bench, Group, Record, Table
from ....plumbing.sections import Section, split_words
from ...answering import AnswerSuite

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result


class CertificateOptions(Section):
    patch: Annotated[tuple[int, ...], BeforeValidator(split_words)] = Field(
        (32,), description="Sides in pixels of the squares to certify against, as 16,32,48."
    )

    @field_validator("patch")
    @classmethod
    def _are_sizes(cls, patch: tuple[int, ...]) -> tuple[int, ...]:
        if not patch or min(patch) < 1:
            raise ValueError(f"is {','.join(map(str, patch))!r}; expected whole numbers of pixels from 1")
        return tuple(dict.fromkeys(patch))


class Certificates(AnswerSuite):
    """`certified` is the share of correct answers that no patch changes; `top1` the accuracy of the defended model.

    Two models are compared by their certified images.
    """

    name, help = "certificate", "Certified accuracy against any patch of a size, and the defended model's accuracy."
    options = CertificateOptions
    compared = "certified"

    def groups(self, bench: Bench, options: CertificateOptions) -> Iterator[Group]:
        from ..certificates import certificate_case

        cases = [certificate_case(bench.subject, patch) for patch in options.patch]  # before reading any data
        images, name = bench.opened
        yield Group(name, images, [case(bench.count(len(images))) for case in cases])

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..certificates import certificate_records

        return [each for result in self.own(results) for each in certificate_records(subject.name, result)]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ..certificates import certificate_rows

        return [Table("", certificate_rows(records))]

    def setting(self, record: Record) -> str:
        return f"certified, {record['masks']} masks"

    def score(self, result: "Result") -> Any:
        from ..certificates import certified

        return certified(result)
