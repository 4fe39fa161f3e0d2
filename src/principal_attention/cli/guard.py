"""Whatever goes wrong in a command becomes one sentence and an exit code."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer

from ..errors import InputError, Interrupted, LeakWarning, TrainingError

RESUMED = ("demo", "evaluate", "analyze")
STOPPED = 130  # the exit code of a command that was interrupted
RANK = int(os.environ.get("RANK", "0"))  # among the processes of a launcher


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, with sentences in the place of tracebacks."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with _sentences(command.__name__.strip("_")):
            command(*args, **options)

    return run


@contextmanager
def _sentences(command: str) -> Iterator[None]:
    """Bad input, a full disk, a run that diverged: one sentence and a non-zero exit, never a traceback."""
    try:
        with _warnings(command):
            yield
    except (InputError, TrainingError) as problem:  # the same in every process
        _end(command, str(problem) if RANK == 0 else "", 1)
    except BrokenPipeError:  # whoever read along has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as problem:
        told = f"{problem.filename}: {problem.strerror}" if problem.filename and problem.strerror else str(problem)
        _end(command, told, 1)
    except ModuleNotFoundError as missing:
        _end(command, f"{missing.name} is not installed; pip install 'principal-attention[all]' brings it", 1)
    except Interrupted as stop:
        _end(command, str(stop) if RANK == 0 else "", STOPPED)
    except KeyboardInterrupt:
        _end(command, "stopped; the same command goes on from here" if command in RESUMED else "stopped", STOPPED)


@contextmanager
def _warnings(command: str) -> Iterator[None]:
    """Our own as a sentence as well; those of libraries as they are."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, LeakWarning):
                before(message, category, *where)
            elif RANK == 0:
                typer.echo(f"principal {command}: warning: {message}", err=True)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _end(command: str, sentence: str, code: int) -> None:
    if sentence:
        typer.echo(f"principal {command}: {' '.join(sentence.splitlines())}", err=True)
    raise typer.Exit(code)
