"""Interface of a kind of task, used by the engines and the command line.

Importing a kind must be fast and must not need its libraries: `principal --help` shows the options of all kinds, and
texts can be evaluated without timm or torchvision. Suites, recipes and options are therefore light; modules that open
models and data are imported inside the methods that need them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..adapt.named import ModelRef
from ..errors import InputError
from ..plumbing.sections import NoOptions, Section
from ..recipes.schema import Recipe

if TYPE_CHECKING:  # not imported with the kind, see above
    import torch

    from ..analysis.inputs import Inputs
    from ..evaluation.outcomes import Result
    from ..evaluation.suite import Record, Subject, Suite
    from ..training.engine import Task


@dataclass(frozen=True)
class DataChoice:
    """Data named on the command line; without `source`, the data of the run."""

    source: str | None = None
    split: str | None = None
    options: Any = None  # an instance of the kind's `data_options` or `analysis_options`

    def __post_init__(self) -> None:
        if self.source is not None and not self.source.strip():
            raise InputError(f"--data is {self.source!r}; expected a name on the hub, a file or a folder")


@dataclass(frozen=True)
class Threat:
    """What a model can be hardened against."""

    help: str  # completes "against …"
    recipe: str  # name of the built-in recipe
    suites: Callable[[Any], Mapping[str, Mapping[str, Any]]]  # from the recipe to suites with their options
    keys: Mapping[str, str] = field(default_factory=dict)  # recipe key of each option of `principal harden`
    limits: Mapping[str, int] = field(default_factory=dict)  # default number of examples of slow suites
    batch_size: int = 50  # examples measured together, of which an interruption loses one batch
    # From the recipe and the results before and after to further records, such as means over cases.
    summary: Callable[[Any, Mapping[str, Sequence["Result"]]], list["Record"]] | None = None


class Kind(ABC):
    name: ClassVar[str]  # `task` in recipes
    title: ClassVar[str]  # plural noun for the models, in messages such as "{title} have no suite …"
    unit: ClassVar[str]  # plural noun for the examples
    recipe: ClassVar[type[Recipe]]
    default_suites: ClassVar[tuple[str, ...]] = ("clean",)
    aliases: ClassVar[Mapping[str, str]] = {}  # alternative suite name -> suite name
    data_options: ClassVar[type[Section]] = (
        NoOptions  # options of `principal evaluate`, in addition to --data and --split
    )
    analysis_options: ClassVar[type[Section]] = NoOptions  # options of `principal analyze`, in addition to these
    chunk: ClassVar[int | None] = None  # examples per line of outcomes; None: the batch size

    @property
    @abstractmethod
    def suites(self) -> Mapping[str, "Suite"]:
        """Suites by name, in the order of lists and reports."""

    @abstractmethod
    def recognises(self, model: ModelRef) -> bool:
        """Whether the model is of this kind, according to its configuration alone."""

    @abstractmethod
    def task(self, recipe: Any, processes: int) -> "Task":
        """The model, data and loss that a recipe describes, for training with this number of processes."""

    @abstractmethod
    def subject(self, model: ModelRef, device: "torch.device | str") -> "Subject":
        """The model, loaded for evaluation."""

    @abstractmethod
    def open_data(self, subject: Any, model: ModelRef, choice: DataChoice) -> tuple[Any, str]:
        """The evaluation data, and their name in records."""

    def inputs(
        self, model: ModelRef, choice: DataChoice, *, count: int, device: "torch.device | str"
    ) -> "Inputs | None":
        """The first `count` examples for `principal analyze`; None if the kind does not support it."""
        return None

    def threats(self) -> Mapping[str, Threat]:
        """Threats by name, for `principal harden`; empty: models of this kind cannot be hardened."""
        return {}

    def hardening_data(self, source: str, split: str | None, holdout: int | None) -> dict[str, Any]:
        """Keys of the recipe's `data` for `principal harden`: examples to train on, and to hold out."""
        raise InputError(f"{self.title} cannot be hardened")

    def listings(self) -> Mapping[str, Callable[[], Mapping[str, str]]]:
        """Lists that `principal list` prints for this kind: name of the list -> function that returns name -> help."""
        return {}

    def commands(self) -> list[Callable[..., None]]:
        """Additional commands of `principal`, as functions for typer."""
        return []
