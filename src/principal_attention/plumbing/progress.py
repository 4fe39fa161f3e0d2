"""Progress of long commands: a bar on a terminal, else a line every 30 seconds."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

EVERY = 30.0  # interval of the lines, in seconds


def make_progress() -> Progress:
    """Progress bar with the remaining time, removed at the end."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        return PlainProgress(console=console, disable=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip


class PlainProgress(Progress):
    """Progress for logs and pipes: lines with the finished part and the remaining time."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._begun: dict[Any, tuple[float, float]] = {}  # start time and initial progress of each task
        self._told = time.monotonic()

    def add_task(self, description: str, *args: Any, **fields: Any) -> Any:
        task = super().add_task(description, *args, **fields)
        self._begun[task] = (time.monotonic(), float(fields.get("completed", 0)))
        return task

    def update(self, task_id: Any, **fields: Any) -> None:  # type: ignore[override]
        super().update(task_id, **fields)
        self._tell(task_id)

    def advance(self, task_id: Any, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def _tell(self, task_id: Any) -> None:
        now = time.monotonic()
        if now - self._told < EVERY:
            return
        self._told = now
        task, (begun, before) = self._tasks[task_id], self._begun[task_id]
        done, total = task.completed, task.total or 0
        speed = (done - before) / (now - begun)
        left = f"{(total - done) / speed / 60:.1f} minutes left" if speed > 0 else "remaining time unknown"
        note = f", {task.fields['note']}" if task.fields.get("note") else ""
        print(f"{task.description}: {done:.0f} of {total:.0f}{note}, {left}", file=sys.stderr, flush=True)
