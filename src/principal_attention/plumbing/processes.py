"""One process among several, and the processes that load images for it."""

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
    """One process among several."""

    rank: int = 0
    world: int = 1


def worker_options(count: int) -> dict[str, Any]:
    """Of a DataLoader with so many loading processes."""
    return dict(num_workers=count, prefetch_factor=4, worker_init_fn=_stand_apart) if count else {}


def _stand_apart(worker: int) -> None:
    """Ctrl-C and job managers signal a whole group of processes: a worker that died of it at once would take the step
    being done with it. It ends when its process ends."""
    if hasattr(os, "setsid"):
        os.setsid()


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spare_workers(processes: int) -> int:
    """One core for each process's own work, the rest to load images with, up to 8 a process."""
    return max(1, min(8, cores() // processes - 1))


@contextmanager
def held_by_first(accelerator: "Accelerator", context: AbstractContextManager[object]) -> Iterator[None]:
    """Enter a context in the first process only; what it refuses is refused in all."""
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
    """Raise the same error in every process when one of them has one: alone, it would leave the others waiting."""
    from accelerate.utils import gather_object

    if accelerator.num_processes > 1:
        flag = torch.tensor(float(problem is not None), device=accelerator.device)
        if not accelerator.reduce(flag, "sum"):
            return
        found = [each for each in gather_object([str(problem) if problem else None]) if each]
        problem = InputError(found[0])
    if problem is not None:
        raise problem
