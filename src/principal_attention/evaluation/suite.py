"""A suite: what is measured of a model, how, and what becomes of it. It owns its options, cases, records and tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from ..errors import InputError
from ..plumbing.sections import NoOptions, Section

if TYPE_CHECKING:  # the options of a suite are shown where nothing of it is run
    import torch

    from .compare import Paired
    from .outcomes import Columns, Result

Record = dict[str, Any]
Rows = list[list[str]]  # the first holds the names of the columns


class Subject(Protocol):
    """A model under test."""

    name: str
    robustify: str | None  # the RPC-Attention it holds, in the words of --robustify

    def fingerprint(self) -> str: ...


class Batch(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def indices(self) -> list[int]:
        """The numbers of the examples in the data."""

    def first(self, count: int) -> Self: ...

    def to(self, device: "torch.device") -> Self: ...


class ExampleSet(Protocol):
    """The evaluation examples: images, texts, the tokens of a text."""

    def fingerprint(self) -> str:
        """A hash of the data; differs when the data differ."""

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class Case:
    """What can be measured of a model, a batch at a time."""

    suite: str
    name: str
    n: int  # examples
    measure: Callable[[Any, Any], "Columns"]  # of a subject and a batch
    pinned: Mapping[str, Any] = field(default_factory=dict)  # what makes it this case and no other
    cost: float = 1.0  # forward passes an example, for the time left

    @property
    def description(self) -> dict[str, Any]:
        return {"suite": self.suite, "case": self.name, "n": self.n, **self.pinned}


@dataclass(frozen=True)
class Group:
    """Cases on the same examples."""

    data: str  # how records call them
    examples: ExampleSet
    cases: Sequence[Case]


@dataclass(frozen=True)
class Bench:
    """What every suite of an evaluation works with: the model, its data, and the options they share."""

    subject: Any
    device: "torch.device"
    open_data: Callable[[], tuple[Any, str]]  # the data, and how records call them; opened when first asked for
    data: str | None = None  # as a person named it
    limit: int | None = None
    batch_size: int = 50
    seed: int = 0

    @cached_property
    def opened(self) -> tuple[Any, str]:
        return self.open_data()

    def count(self, available: int) -> int:
        """How many examples are measured."""
        return min(self.limit or available, available)


class Table(NamedTuple):
    title: str
    rows: Rows


class Suite(ABC):
    name: ClassVar[str]
    help: ClassVar[str]  # one line
    options: ClassVar[type[Section]] = NoOptions
    comparable: ClassVar[bool] = True  # whether two models can be compared example by example
    check_title: ClassVar[str] = ""  # the question that `checks` answer

    @abstractmethod
    def groups(self, bench: Bench, options: Any) -> Iterator[Group]:
        """What is to be measured, on which examples. Groups on the same examples are measured together."""

    @abstractmethod
    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        """Records of this suite's results; `results` are those of every suite in the folder."""

    def checks(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        """Records of what the suite finds about its own measurements: see `results.check_record`."""
        return []

    @abstractmethod
    def tables(self, records: Sequence[Record]) -> list[Table]:
        """The suite's records as tables; those of one title and the same columns are printed as one."""

    def setting(self, record: Record) -> str:
        """What pins a case down beside its name, in a few words."""
        return str(record.get("data") or "")

    def score(self, result: "Result") -> Any:
        """An array with a number for each example, the larger the better, or whether it was right; None: neither."""
        return None

    def compare(self, ours: "Result", theirs: "Result") -> "Paired | None":
        """Two models on the same examples, by their scores; None where this case has none."""
        from .compare import on_same_examples

        score = self.score(ours)
        return None if score is None else on_same_examples(score, self.score(theirs))

    def write(self, subject: Any, results: Sequence["Result"], folder: Path, options: Any) -> list[Path]:
        """What else the options ask for, as files in the evaluation's folder."""
        return []

    def own(self, results: Sequence["Result"]) -> list["Result"]:
        return [result for result in results if result.description["suite"] == self.name]


def merged(groups: Sequence[Group]) -> list[Group]:
    """Groups on the same examples as one, so that each example is read once."""
    found: dict[int, Group] = {}
    for group in groups:
        key = id(group.examples)
        before = found.get(key)
        cases = [*(before.cases if before else ()), *group.cases]
        if before is not None and before.data != group.data:
            raise InputError(f"the same examples are called {before.data} and {group.data}")
        found[key] = Group(group.data, group.examples, cases)
    return list(found.values())
