"""Suite of the out-of-distribution sets ImageNet-A, -R and -O, as unpacked."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ....errors import InputError
from ....evaluation.suite import Bench, Group, Record, Table
from ....plumbing.sections import Section
from ...answering import AnswerSuite

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result


class OutOfDistributionOptions(Section):
    ood: Path | None = Field(
        None, description="Folder that holds imagenet-a, imagenet-r and imagenet-o, or one of them. Default: --data."
    )


class OutOfDistribution(AnswerSuite):
    name, help = "ood", "Accuracy on ImageNet-A and -R, and detection of ImageNet-O by low confidence (AUPR)."
    options = OutOfDistributionOptions

    def groups(self, bench: Bench, options: OutOfDistributionOptions) -> Iterator[Group]:
        from ..published import SETS, find_sets, negative_case, open_set, set_case

        where = options.ood or bench.data
        if where is None:
            raise InputError(f"--ood is missing: expected a folder that holds {', '.join(SETS)}, or one of them")
        try:
            sets = find_sets(Path(where).expanduser())
        except InputError as wrong:
            hint = "; name the folder of the sets with --ood" if options.ood is None else ""
            raise InputError(f"{wrong}{hint}") from wrong
        for case, folder in sets.items():
            found = open_set(case, folder, bench.subject.view)
            yield Group(case, found, [set_case(case, bench.count(len(found)), bench.limit)])
            if case == "imagenet-o":
                if options.ood is None or bench.data is None:
                    raise InputError("imagenet-o is compared with ImageNet's validation images: name them with --data")
                images, name = bench.opened
                known, negative = negative_case(images, bench.limit)
                yield Group(name, known, [negative])

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..summary import aupr

        answered = [result for result in self.own(results) if self._has_answers(result)]
        return super().summarise(subject, answered) + aupr(subject.name, self.own(results))

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ..summary import aupr_rows

        return [*super().tables(records), Table("", aupr_rows(records))]

    def score(self, result: "Result") -> Any:
        return super().score(result) if self._has_answers(result) else None

    def _has_answers(self, result: "Result") -> bool:
        """False for ImageNet-O and its negatives, which are scored by confidence only."""
        from ..published import NEGATIVES

        return result.description["case"] not in ("imagenet-o", NEGATIVES)
