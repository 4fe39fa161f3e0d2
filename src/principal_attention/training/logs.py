"""Log of a run: progress bar with the remaining time, JSON lines, and TensorBoard."""

import json
from pathlib import Path
from typing import Any

from rich.progress import Progress

from ..plumbing.files import read_jsonl, write_jsonl, writing
from ..plumbing.layout import METRICS, TENSORBOARD
from ..plumbing.progress import make_progress


class Log:
    """Log without output, for all processes except the first."""

    def start(self, step: int, total: int, resumed: bool) -> None: ...
    def line(self, values: dict[str, Any]) -> None: ...
    def advance(self, step: int, note: str) -> None: ...
    def say(self, sentence: str) -> None: ...
    def close(self) -> None: ...


class RunLog(Log):
    """Log to `metrics.jsonl` and `tensorboard/` in the run's folder, and a progress bar on the terminal."""

    def __init__(self, folder: Path, name: str, progress: Progress | None = None, *, tensorboard: bool = True):
        self.folder, self.path, self.name, self.tensorboard = folder, folder / METRICS, name, tensorboard
        self.owned = progress is None
        self.progress = progress or make_progress()
        self.board: Any = None
        self.file: Any = None
        self.task: Any = None

    def start(self, step: int, total: int, resumed: bool) -> None:
        # Lines that a killed run logged after its checkpoint are removed, since their steps are repeated.
        again = step + 1 if step else 0
        kept = [line for line in read_jsonl(self.path) if line.get("step", 0) < again] if resumed else []
        write_jsonl(self.path, kept)
        self.file = self.path.open("a", encoding="utf-8")
        if self.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(self.folder / TENSORBOARD), purge_step=again if resumed else None)
        self.task = self.progress.add_task(self.name, total=total, completed=step, note="")
        if self.owned:
            self.progress.start()

    def line(self, values: dict[str, Any]) -> None:
        with writing(self.path):
            self.file.write(json.dumps(values) + "\n")
            self.file.flush()
        for name, value in values.items():
            if self.board is not None and name not in ("step", "epoch"):
                self.board.add_scalar(name, value, values["step"])

    def advance(self, step: int, note: str) -> None:
        self.progress.update(self.task, completed=step, note=note)

    def say(self, sentence: str) -> None:
        self.progress.console.print(sentence, highlight=False, markup=False)

    def close(self) -> None:
        if self.task is not None:
            self.progress.remove_task(self.task)
        if self.owned:
            self.progress.stop()
        for each in (self.file, self.board):
            if each is not None:
                each.close()
