"""Suite of adversarial attacks, with checks for masked gradients."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from ....errors import InputError
from ....evaluation.suite import Bench, Case, Group, Record, Table
from ....plumbing.sections import Count, Numbers, Section, Words, check_names
from ...answering import AnswerSuite
from ..sources import SOURCE, SOURCE_ROBUSTIFY, open_source

if TYPE_CHECKING:
    from ....evaluation.outcomes import Result
    from ..subject import ImageSubject


class AttackOptions(Section):
    attacks: Words = Field(("fgsm", "pgd"), description="Attacks, from `principal list attacks`.")
    eps: Numbers = Field((), description="Budgets in the ℓ∞ norm, as 1/255,2/255. Default: the protocol's.")
    eps_l2: Numbers = Field((), description="Budgets of cw in the ℓ2 norm. Default: 0.5.")
    eps_l1: Numbers = Field((), description="Budgets of sld in the ℓ1 norm. Default: 10.")
    steps: Count | None = Field(None, description="Iterations (or queries) of each attack. Default: the attack's own.")
    targets: Count = Field(9, description="Classes that apgd-t and fab-t aim at.")
    samples: int = Field(128, ge=2, description="Queries of spsa in each step.")
    protocol: Literal["pixel", "authors"] = Field("pixel", description="Meaning of a budget: pixel or authors.")
    gradients: Words = Field(("own",), description="Gradients to attack with: own, straight, infinite, transfer.")
    source: str | None = Field(None, description=SOURCE)
    source_robustify: str | None = Field(None, description=SOURCE_ROBUSTIFY)

    @field_validator("eps")
    @classmethod
    def _within_an_image(cls, eps: tuple[float, ...]) -> tuple[float, ...]:
        for budget in eps:
            if budget > 1:
                raise ValueError(
                    f"is {budget:g}, and pixels run from 0 to 1: expected at most 1; for {budget:g} grey levels write "
                    f"{budget:g}/255"
                )
        return eps


class Attacks(AnswerSuite):
    name, help = "attacks", "Accuracy under attack, and checks for masked gradients."
    options = AttackOptions
    check_title = "Checks for masked gradients"

    def groups(self, bench: Bench, options: AttackOptions) -> Iterator[Group]:
        images, name = bench.opened
        yield Group(name, images, list(self._cases(bench, options, bench.count(len(images)))))

    def _cases(self, bench: Bench, options: AttackOptions, n: int) -> Iterator[Case]:
        from ....pursuit import surrogate
        from ....vision.attacks import ATTACKS
        from ..cases import attack_case
        from ..masking import gradient_case
        from ..protocols import GRADIENTS, PROTOCOLS

        subject, protocol = bench.subject, PROTOCOLS[options.protocol]
        names = check_names(options.attacks, list(ATTACKS), "attack")
        sources = check_names(options.gradients, GRADIENTS, "source of gradients")
        for bent in surrogate.KINDS:
            if bent in sources and not subject.robustify:
                raise InputError(
                    f"--gradients {bent} is for models with RPC-Attention; {subject.name} has no RPC-Attention"
                )
        other = _source(bench, options, sources)
        given = {norm: x for norm, x in _budgets(options).items() if x}
        for norm in given:
            if all(ATTACKS[name].norm != norm for name in names):
                option = "--eps" if norm == "linf" else f"--eps-{norm}"
                fitting = ", ".join(name for name, its in ATTACKS.items() if its.norm == norm)
                raise InputError(
                    f"{option} was given and --attacks is {','.join(names)}; {option} is the budget of {fitting}"
                )
        yield gradient_case(n)
        for name in names:
            kind = ATTACKS[name]
            if protocol.name == "authors" and kind.pixels:
                usable = ", ".join(each for each, its in ATTACKS.items() if not its.pixels)
                raise InputError(f"{name} works on images in [0, 1]; --protocol authors is for {usable}")
            more: dict[str, Any] = {key: getattr(options, key) for key in ("targets", "samples") if key in kind.options}
            for budget in protocol.budgets(name, given):
                for gradients in sources:
                    if gradients in ("own", "transfer") or kind.gradients:
                        yield attack_case(
                            name, n, eps=budget, protocol=protocol, gradients=gradients, steps=options.steps,
                            seed=bench.seed, source=other if gradients == "transfer" else None, **more,
                        )  # fmt: skip

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..summary import attack_records

        return attack_records(subject.name, self.own(results))

    def checks(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from ..masking import check_masking

        return check_masking(subject.name, self.own(results))

    def tables(self, records: Sequence[Record]) -> list[Table]:
        from ....vision.attacks import ATTACKS

        order = list(ATTACKS)
        own = [each for each in records if each["metric"] == "top1"]
        own.sort(key=lambda each: (order.index(each["case"]), each["protocol"], each["norm"], each["eps"]))
        return super().tables(own)

    def setting(self, record: Record) -> str:
        from ..protocols import in_words

        return in_words(record)

    def score(self, result: "Result") -> Any:
        return None if result.description["case"] == "gradients" else super().score(result)


def _budgets(options: AttackOptions) -> dict[str, tuple[float, ...]]:
    return {"linf": options.eps, "l2": options.eps_l2, "l1": options.eps_l1}


def _source(bench: Bench, options: AttackOptions, sources: Sequence[str]) -> "ImageSubject | None":
    """The source model of transferred attacks; None if attacks are not transferred."""
    if ("transfer" in sources) != (options.source is not None):
        raise InputError("--gradients transfer and --source MODEL must be given together")
    if options.source is not None and options.protocol != "pixel":
        raise InputError(f"--source was given and --protocol is {options.protocol}; expected --protocol pixel")
    return open_source(bench, options.source, options.source_robustify)
