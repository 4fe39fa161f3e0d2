"""Distributed processes, and the worker processes of their data loaders."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InputError

if TYPE_CHECKING:
    from accelerate import Accelerator


@dataclass(frozen=True)
class Place:
    """Rank of a process, and number of processes."""

    rank: int = 0
    world: int = 1


def worker_options(count: int) -> dict[str, Any]:
    """Options of a DataLoader with `count` workers."""
    return dict(num_workers=count, prefetch_factor=4, worker_init_fn=_stand_apart) if count else {}


def _stand_apart(worker: int) -> None:
    """Put a worker in its own process group. Ctrl-C and job managers signal the whole group of the main process, and a
    worker that ended at once would break the current step."""
    if hasattr(os, "setsid"):
        os.setsid()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spare_workers(processes: int) -> int:
    """Number of workers per process: the cores not used by the processes themselves, from 1 to 8 per process."""
    return max(1, min(8, cores() // processes - 1))


@contextmanager
def held_by_first(accelerator: "Accelerator", context: AbstractContextManager[object]) -> Iterator[None]:
    """Context manager that enters `context` in the first process only; an error of entering is raised in all."""
    with ExitStack() as stack:
        problem: Exception | None = None
        if accelerator.is_main_process:
            try:
                stack.enter_context(context)
            except (InputError, OSError) as wrong:
                problem = wrong
        raise_together(problem, accelerator)
        yield


def raise_together(problem: Exception | None, accelerator: "Accelerator") -> None:
    """Raise an error of one process in all of them; otherwise the others would wait for it forever."""
    from accelerate.utils import gather_object

    if accelerator.num_processes > 1:
        flag = torch.tensor(float(problem is not None), device=accelerator.device)
        if not accelerator.reduce(flag, "sum"):
            return
        found = [each for each in gather_object([str(problem) if problem else None]) if each]
        problem = InputError(found[0])
    if problem is not None:
        raise problem
