"""Suite of the fifteen corruptions of ImageNet-C, computed here or read from the published images."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ....errors import InputError
from ....evaluation.suite import Bench, Group, Record, Table
from ....plumbing.sections import Section, Words, check_names
from ...answering import AnswerSuite

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result


class CorruptionOptions(Section):
    corruptions: Words | None = Field(None, description="Kinds, from `principal list corruptions`. Default: all.")
    severities: Words = Field(("1", "2", "3", "4", "5"), description="Severities, from 1 to 5.")
    frost_dir: Path | None = Field(
        None, description="Folder of ImageNet-C's photographs of frost. Default: synthetic frost."
    )
    imagenet_c: Path | None = Field(None, description="Folder of the published ImageNet-C, used instead.")


class Corruptions(AnswerSuite):
    name, help = "corruptions", "Accuracy under the fifteen corruptions of ImageNet-C; mCE where it is defined."
    options = CorruptionOptions

    def groups(self, bench: Bench, options: CorruptionOptions) -> Iterator[Group]:
        from ....vision.corruptions import CORRUPTIONS, SEVERITIES, read_textures
        from ..cases import corruption_cases, published_corruption_case
        from ..published import open_imagenet_c

        names = check_names(
            CORRUPTIONS if options.corruptions is None else options.corruptions, CORRUPTIONS, "corruption"
        )
        severities = [int(s) for s in check_names(options.severities, [str(s) for s in SEVERITIES], "severity")]
        if options.frost_dir is not None and ("frost" not in names or options.imagenet_c is not None):
            raise InputError(
                "--frost-dir was given, but frost is not computed here; drop it, or add frost to --corruptions"
            )
        if options.imagenet_c is not None:
            for name, severity, images in open_imagenet_c(options.imagenet_c, names, severities, bench.subject.view):
                case = published_corruption_case(name, severity, bench.count(len(images)))
                yield Group("imagenet-c", images, [case])
            return
        textures = None if options.frost_dir is None else read_textures(options.frost_dir)
        images, data = bench.opened
        n = bench.count(len(images))
        yield Group(data, images, corruption_cases(names, severities, n, seed=bench.seed, textures=textures))

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..summary import accuracy_records, corruption_errors

        made = [each for result in self.own(results) for each in accuracy_records(subject.name, result)]
        if subject.view.num_classes != 1000:  # mCE divides by AlexNet's errors on ImageNet
            return made
        clean = [
            each for r in results if r.description["suite"] == "clean" for each in accuracy_records(subject.name, r)
        ]
        return made + corruption_errors(subject.name, [*clean, *made])

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ..summary import corruption_tables

        return [Table(title, rows) for title, rows in corruption_tables(records)]

    def setting(self, record: Record) -> str:
        return f"severity {record['severity']}"
