"""Suite of patch attacks: one square of each image takes any values."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ....errors import InputError
from ....evaluation.suite import Bench, Case, Group, Record, Table
from ....plumbing.sections import Count, Section, Words, as_option, check_names
from ...answering import AnswerSuite
from ..sources import SOURCE, SOURCE_ROBUSTIFY, open_source

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result
    from ..examples import Images
    from ..patch_cases import Square

STEPS, PLACES, TRAINING = 100, 8, 256


class PatchOptions(Section):
    patch: Words = Field(("32",), description="Sides of the square patch in pixels, as 16,32.")
    patch_attacks: Words = Field(
        (), description="Attacks: pgd, evade (for models with token pursuit), transfer (patches made on --source), "
        "universal (one patch for all images, learnt on --universal-data), garbage (noise, stripes, a piece of another "
        "image). Default: all that the model and the options allow.",
    )  # fmt: skip
    steps: Count | None = Field(None, description=f"Gradient steps of each attack. Default: {STEPS}.")
    restarts: Count = Field(1, description="Tries of each start; also draws of each kind of garbage.")
    start: Literal["both", "image", "noise"] = Field(
        "both", description="Pixels that attacks start from: image, noise, or both (an image must survive both)."
    )
    placement: Literal["random", "fixed", "worst"] = Field(
        "random",
        description="Place of the patch: random (by seed and image, the same for every model), fixed (--corner), or "
        "worst (of --places random places).",
    )
    places: Count | None = Field(None, description=f"Number of places of --placement worst. Default: {PLACES}.")
    corner: str | None = Field(None, description="Row and column of the upper left pixel of a fixed patch, as 0,0.")
    source: str | None = Field(None, description=SOURCE)
    source_robustify: str | None = Field(None, description=SOURCE_ROBUSTIFY)
    universal_data: str | None = Field(
        None, description="Labelled images to learn a universal patch on. If they are those of --data, images that are "
        "not evaluated are used.",
    )  # fmt: skip
    universal_split: str | None = Field(None, description="Split of --universal-data. Default: as for --split.")
    universal_steps: Count | None = Field(None, description="Steps of learning a universal patch. Default: --steps.")
    universal_images: Count = Field(TRAINING, description="Number of images to learn a universal patch on.")


class Patches(AnswerSuite):
    name, help = "patches", "Accuracy under patch attacks: one square of each image takes any values."
    options = PatchOptions
    check_title = "Checks for masked gradients"

    def groups(self, bench: Bench, options: PatchOptions) -> Iterator[Group]:
        images, name = bench.opened
        yield Group(name, images, list(self._cases(bench, options, images, bench.count(len(images)))))

    def _cases(self, bench: Bench, options: PatchOptions, images: "Images", n: int) -> Iterator[Case]:
        from ..evading import evadable, evade
        from ..patch_cases import garbage_case, gradient_case, universal_case
        from ..patch_training import UniversalPatch, training_images

        names = _names(options, evadable(bench.subject), bench.subject.name)
        source = open_source(bench, options.source, options.source_robustify)
        steps = options.steps or STEPS
        ascent: dict[str, Any] = {"steps": steps, "restarts": options.restarts, "start": options.start}
        training = None
        if "universal" in names and options.universal_data is not None:
            training = training_images(
                bench.subject, options.universal_data, options.universal_split, options.universal_images, images, n
            )
        for square in squares(options, bench.subject.view.size, bench.seed):
            if "pgd" in names:
                yield gradient_case("pgd", n, square, **ascent)
            if "evade" in names:
                yield gradient_case("evade", n, square, objective=evade, **ascent)
            if "transfer" in names:
                yield gradient_case("transfer", n, square, source=source, **ascent)
            if training is not None:
                patch = UniversalPatch(square, options.universal_steps or steps, training, bench.folder)
                yield universal_case(n, square, patch=patch, **patch.pinned)
            if "garbage" in names:
                yield garbage_case(n, square, draws=options.restarts, images=images)

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..patch_checks import worst_records

        return super().summarise(subject, results) + worst_records(subject.name, self.own(results))

    def checks(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..patch_checks import check_patches

        return check_patches(subject.name, self.own(results))

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ..patch_cases import CASES

        order = [*CASES, "worst"]
        own = [each for each in records if each["metric"] == "top1"]
        return super().tables(
            sorted(own, key=lambda each: (each["patch"], order.index(each["case"]), each.get("steps", 0)))
        )

    def setting(self, record: Record) -> str:
        from ..patch_checks import in_words

        return in_words(record)


def _names(options: PatchOptions, evadable: bool, model: str) -> list[str]:
    """Attacks to measure. What an attack needs must be given, and what is given must be needed."""
    from ..patch_cases import CASES

    needs = {"transfer": ("--source", options.source), "universal": ("--universal-data", options.universal_data)}
    allowed = {"evade": evadable, **{name: value is not None for name, (_, value) in needs.items()}}
    names = check_names(
        options.patch_attacks or [name for name in CASES if allowed.get(name, True)], list(CASES), "patch attack"
    )
    if "evade" in names and not evadable:
        raise InputError(f"--patch-attacks evade is for models with token pursuit; {model} has no token pursuit")
    for name, (option, value) in needs.items():
        if (name in names) != (value is not None):
            raise InputError(f"--patch-attacks {name} and {option} must be given together")
    for key in ("universal_split", "universal_steps"):
        if getattr(options, key) is not None and "universal" not in names:
            raise InputError(f"{as_option(key)} was given without --universal-data")
    return names


def squares(options: PatchOptions, side: int, seed: int) -> "list[Square]":
    from ....vision.attacks.places import check_patch, fixed_place
    from ..patch_cases import Square

    if (options.placement == "fixed") != (options.corner is not None):
        raise InputError("--placement fixed and --corner ROW,COLUMN must be given together")
    if options.places is not None and options.placement != "worst":
        raise InputError(f"--places is for --placement worst, and --placement is {options.placement}")
    corner = _corner(options.corner)
    made = []
    for size in dict.fromkeys(_side(word) for word in options.patch):
        check_patch(size, side, side)
        if corner is not None:
            fixed_place(size, side, side, corner, images=1)
        places = (options.places or PLACES) if options.placement == "worst" else 1
        made.append(Square(size, options.placement, places, corner, seed))
    if not made:
        raise InputError("--patch is empty; expected at least one side in pixels, such as 32")
    return made


def _side(word: str) -> int:
    if not word.isdecimal():
        raise InputError(f"--patch is {word}; expected sides in pixels as whole numbers, such as 16,32")
    return int(word)


def _corner(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    row, comma, column = (word.strip() for word in given.partition(","))
    if not (comma and row.isdecimal() and column.isdecimal()):
        raise InputError(f"--corner is {given}; expected a row and a column in pixels, such as 0,0")
    return int(row), int(column)
