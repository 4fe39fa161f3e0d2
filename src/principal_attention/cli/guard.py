"""Report the errors of commands as one sentence and an exit code."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer

from ..errors import InputError, Interrupted, LeakWarning, TrainingError

RESUMED = ("demo", "evaluate", "certify", "analyze")  # commands that resume when run again
STOPPED = 130  # exit code of an interrupted command
RANK = int(os.environ.get("RANK", "0"))  # rank of this process, set by launchers such as torchrun


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that errors are printed as sentences instead of tracebacks."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with _sentences(command.__name__.strip("_")):
            command(*args, **options)

    return run


@contextmanager
def _sentences(command: str) -> Iterator[None]:
    """Context manager that prints expected errors, such as invalid input or a full disk, as one sentence, and exits
    with a non-zero code."""
    try:
        with _warnings(command):
            yield
    except (InputError, TrainingError) as problem:  # raised in every process; printed by the first
        _end(command, str(problem) if RANK == 0 else "", 1)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as problem:
        told = f"{problem.filename}: {problem.strerror}" if problem.filename and problem.strerror else str(problem)
        _end(command, told, 1)
    except ModuleNotFoundError as missing:
        _end(command, f"{missing.name} is not installed; install it with pip install 'principal-attention[all]'", 1)
    except Interrupted as stop:
        _end(command, str(stop) if RANK == 0 else "", STOPPED)
    except KeyboardInterrupt:
        _end(command, "stopped; run the same command to continue" if command in RESUMED else "stopped", STOPPED)


@contextmanager
def _warnings(command: str) -> Iterator[None]:
    """Context manager that prints this package's warnings as one sentence; those of libraries are unchanged."""
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
