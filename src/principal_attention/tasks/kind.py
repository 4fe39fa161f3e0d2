"""What a kind of task offers to the engines and the command line.

Importing a room must be cheap and need no library of its kind: `principal --help` shows the options of all kinds, and
texts are measured where no library of images is installed. So suites, recipes and options are light, and what opens
models and data is imported inside the methods that need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..adapt.named import ModelRef
from ..errors import InputError
from ..plumbing.sections import NoOptions, Section
from ..recipes.schema import Recipe

if TYPE_CHECKING:  # what a room's light part does not load
    import torch

    from ..analysis.inputs import Inputs
    from ..evaluation.suite import Subject, Suite
    from ..training.engine import Task


@dataclass(frozen=True)
class DataChoice:
    """Which examples a person asked for; a run has its own."""

    source: str | None = None
    split: str | None = None
    options: Any = None  # the kind's `data_options`, or its `analysis_options`

    def __post_init__(self) -> None:
        if self.source is not None and not self.source.strip():
            raise InputError(f"--data is {self.source!r}; expected a name on the hub, a file or a folder")


class Kind(ABC):
    name: ClassVar[str]  # as a recipe's `task` says it
    title: ClassVar[str]  # in messages: "{title} have no suite …"
    unit: ClassVar[str]  # of its examples
    recipe: ClassVar[type[Recipe]]
    default_suites: ClassVar[tuple[str, ...]] = ("clean",)
    aliases: ClassVar[Mapping[str, str]] = {}  # other names of suites
    data_options: ClassVar[type[Section]] = NoOptions  # of `principal evaluate`, beside --data and --split
    analysis_options: ClassVar[type[Section]] = NoOptions  # of `principal analyze`, beside these
    chunk: ClassVar[int | None] = None  # examples whose outcomes are written together; None: the batch size

    @property
    @abstractmethod
    def suites(self) -> Mapping[str, "Suite"]:
        """By name, in the order they are listed and reported in."""

    @abstractmethod
    def recognises(self, model: ModelRef) -> bool:
        """Whether this is a model of this kind, by its card alone."""

    @abstractmethod
    def task(self, recipe: Any, processes: int) -> "Task":
        """What a recipe of this kind trains, on what."""

    @abstractmethod
    def subject(self, model: ModelRef, device: "torch.device | str") -> "Subject":
        """The model, opened to be measured."""

    @abstractmethod
    def open_data(self, subject: Any, model: ModelRef, choice: DataChoice) -> tuple[Any, str]:
        """The data that its suites measure on, and how records call them."""

    def inputs(
        self, model: ModelRef, choice: DataChoice, *, count: int, device: "torch.device | str"
    ) -> "Inputs | None":
        """What `principal analyze` shows the model, `count` examples; None: its heads are not analysed."""
        return None

    def listings(self) -> Mapping[str, Callable[[], Mapping[str, str]]]:
        """The lists that `principal list` prints for this kind: of each, the names with a line about each."""
        return {}

    def commands(self) -> list[Callable[..., None]]:
        """Commands of `principal` that only this kind has, as typer takes them."""
        return []
