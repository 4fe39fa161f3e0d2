"""What `principal evaluate` has to do, for any kind of model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ..evaluation.outcomes import Result
from ..evaluation.run import Evaluation, Group, Subject


@dataclass(frozen=True)
class Plan:
    subject: Subject
    groups: Sequence[Group]
    batch_size: int  # examples whose outcomes are written down together
    summarise: Callable[[list[Result]], list[dict[str, Any]]]
    show: Callable[[Console, Evaluation, Path], None]  # what was found, and the folder it is in
