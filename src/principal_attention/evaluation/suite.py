"""Interface of suites. A suite defines what is measured of a model: options, cases, records and tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from ..errors import InputError
from ..plumbing.sections import NoOptions, Section

if TYPE_CHECKING:  # the help shows the options of suites without importing torch
    import torch

    from .compare import Paired
    from .outcomes import Columns, Result

Record = dict[str, Any]
Rows = list[list[str]]  # the first row holds the names of the columns


class Subject(Protocol):
    """Model to evaluate."""

    name: str
    robustify: str | None  # its RPC-Attention in the notation of --robustify; None if it has none

    def fingerprint(self) -> str: ...


class Batch(Protocol):
    """Batch of examples."""

    @property
    def number(self) -> int: ...

    @property
    def indices(self) -> list[int]:
        """Indices of the examples in the data."""

    def first(self, count: int) -> Self: ...

    def to(self, device: "torch.device") -> Self: ...


class ExampleSet(Protocol):
    """Evaluation examples: images, texts, or windows of tokens."""

    def fingerprint(self) -> str:
        """Hash of the data; differs when the data differ."""

    def batches(self, size: int, wanted: Sequence[int], workers: int) -> Iterator[Batch]:
        """Batches with the numbers `wanted`, of `size` examples each, loaded by `workers` processes."""


@dataclass(frozen=True)
class Case:
    """One measurement of a model, done batch by batch."""

    suite: str
    name: str
    n: int  # number of examples
    measure: Callable[[Any, Any], "Columns"]  # function of a subject and a batch
    pinned: Mapping[str, Any] = field(default_factory=dict)  # settings that identify the case
    cost: float = 1.0  # forward passes per example, to estimate the remaining time

    @property
    def description(self) -> dict[str, Any]:
        return {"suite": self.suite, "case": self.name, "n": self.n, **self.pinned}


@dataclass(frozen=True)
class Group:
    """Cases on the same examples."""

    data: str  # name of the data in records
    examples: ExampleSet
    cases: Sequence[Case]


@dataclass(frozen=True)
class Bench:
    """Inputs of every suite of an evaluation: the model, its data, and the shared options."""

    subject: Any
    device: "torch.device"
    open_data: Callable[[], tuple[Any, str]]  # opens the data; returns the data and their name in records
    data: str | None = None  # value of --data
    limit: int | None = None  # maximum number of examples
    batch_size: int = 50
    seed: int = 0
    folder: Path | None = None  # output folder, for what cases make and need again after an interruption

    @cached_property
    def opened(self) -> tuple[Any, str]:
        """Data and their name in records; opened on first access."""
        return self.open_data()

    def count(self, available: int) -> int:
        """Number of examples to measure."""
        return min(self.limit or available, available)


class Table(NamedTuple):
    title: str
    rows: Rows


class Suite(ABC):
    """Base class of suites."""

    name: ClassVar[str]
    help: ClassVar[str]  # one line
    options: ClassVar[type[Section]] = NoOptions
    comparable: ClassVar[bool] = True  # whether two models can be compared example by example
    compared: ClassVar[str] = "top1"  # metric that is the mean of `score`
    check_title: ClassVar[str] = ""  # the question that `checks` answer

    @abstractmethod
    def groups(self, bench: Bench, options: Any) -> Iterator[Group]:
        """Groups of cases to measure. Groups on the same examples are measured together."""

    @abstractmethod
    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        """Records of this suite's results; `results` are those of every suite in the folder."""

    def checks(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        """Records of the suite's checks of its own measurements, see `results.check_record`."""
        return []

    @abstractmethod
    def tables(self, records: Sequence[Record]) -> list[Table]:
        """Tables of the suite's records. Tables with the same title and columns are printed as one."""

    def setting(self, record: Record) -> str:
        """Settings of a case besides its name, in a few words."""
        return str(record.get("data") or "")

    def score(self, result: "Result") -> Any:
        """Array with a score per example (larger is better) or a boolean (right or wrong); None if there is neither."""
        return None

    def compare(self, ours: "Result", theirs: "Result") -> "Paired | None":
        """Comparison of two models on the same examples by their scores; None for a case without scores."""
        from .compare import on_same_examples

        score = self.score(ours)
        return None if score is None else on_same_examples(score, self.score(theirs))

    def write(self, subject: Any, results: Sequence["Result"], folder: Path, options: Any) -> list[Path]:
        """Write further files that the options ask for to the evaluation's folder; returns their paths."""
        return []

    def own(self, results: Sequence["Result"]) -> list["Result"]:
        """Results of this suite."""
        return [result for result in results if result.description["suite"] == self.name]


def merged(groups: Sequence[Group]) -> list[Group]:
    """Merge groups on the same examples, so that each example is read once."""
    found: dict[int, Group] = {}
    for group in groups:
        key = id(group.examples)
        before = found.get(key)
        cases = [*(before.cases if before else ()), *group.cases]
        if before is not None and before.data != group.data:
            raise InputError(f"the same examples are called {before.data} and {group.data}")
        found[key] = Group(group.data, group.examples, cases)
    return list(found.values())
