"""What was found of every example: a line a batch, appended, so that a kill loses nothing but the batch at hand."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..plumbing.files import read_jsonl, write_text, writing
from ..plumbing.layout import EVALUATION, OUTCOMES

Columns = dict[str, list[Any]]


def key_of(description: Mapping[str, Any]) -> str:
    return json.dumps(description, sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class Result:
    """A whole case: what it was, and its columns, sorted by the examples' place in the data."""

    description: dict[str, Any]  # suite, case, n, and what else pins it down
    columns: dict[str, np.ndarray[Any, Any]]
    flags: list[str]
    seconds: float


class Outcomes:
    """A folder of outcomes. Every process appends to a file of its own and reads everybody's."""

    def __init__(self, folder: Path, rank: int = 0):
        self.folder, self.path = folder, folder / OUTCOMES.format(rank)
        self._whole = False

    def lines(self) -> list[dict[str, Any]]:
        """One for each batch that was done; where two processes did the same one in two attempts, the first."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for path in sorted(self.folder.glob(OUTCOMES.format("*"))):
            for line in read_jsonl(path):
                if not isinstance(line, dict) or not {"case", "batch", "index"} <= set(line):
                    raise InputError(f"{path} is damaged: it holds {line!r}; choose another --out")
                found.setdefault((line["case"], line["batch"]), line)
        return list(found.values())

    def done(self) -> set[tuple[str, int]]:
        return {(line["case"], line["batch"]) for line in self.lines()}

    def append(self, case: str, batch: int, columns: Mapping[str, Any], seconds: float) -> None:
        line = json.dumps({"case": case, "batch": batch, "seconds": round(seconds, 3), **columns}, ensure_ascii=False)
        with writing(self.path), open(self.path, "ab") as file:
            if not self._whole:  # a kill may have cut the last line short
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)
                self._whole = True
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def results(self) -> list[Result]:
        """The cases that are complete."""
        by_case: dict[str, list[dict[str, Any]]] = {}
        for line in self.lines():
            by_case.setdefault(line["case"], []).append(line)
        found = []
        for key, lines in by_case.items():
            description = json.loads(key)
            lines.sort(key=lambda line: line["batch"])
            names = [name for name, x in lines[0].items() if isinstance(x, list) and name != "flags"]
            columns = {name: np.array([x for line in lines for x in line[name]]) for name in names}
            if len(columns["index"]) == description["n"]:
                order = np.argsort(columns["index"], kind="stable")
                flags = list(dict.fromkeys(flag for line in lines for flag in line.get("flags", ())))
                seconds = sum(line["seconds"] for line in lines)
                found.append(Result(description, {name: x[order] for name, x in columns.items()}, flags, seconds))
        return found


def open_outcomes(folder: Path, settings: Mapping[str, Any], rank: int) -> Outcomes:
    """A folder for one model on one set of examples; what was done there before must have been the same."""
    path = folder / EVALUATION
    if path.exists():
        before = read_settings(folder)
        for name, value in settings.items():
            if before.get(name) != value:
                told = f"--{name.replace('_', '-')} {before.get(name)}" if name != "weights" else "other weights"
                raise InputError(f"{folder} holds an evaluation with {told}, not {value}: choose another --out")
    elif rank == 0:
        write_text(path, json.dumps(dict(settings), indent=1, ensure_ascii=False) + "\n")
    return Outcomes(folder, rank)


def read_settings(folder: Path) -> dict[str, Any]:
    path = folder / EVALUATION
    if not path.is_file():
        raise InputError(f"{folder} holds no evaluation; expected a folder that principal evaluate wrote to")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as wrong:
        raise InputError(f"{path} is damaged ({wrong}); choose another --out") from wrong
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged: it holds {found!r}; choose another --out")
    return found
