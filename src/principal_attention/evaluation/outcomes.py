"""Outcomes: measurements of every example, appended as one line per batch, so that a kill loses one batch at most."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..plumbing.files import read_jsonl, write_text, writing
from ..plumbing.layout import EVALUATION, OUTCOMES

Columns = dict[str, list[Any]]  # by name, one entry per example


def key_of(description: Mapping[str, Any]) -> str:
    """Key of a case: its description as JSON."""
    return json.dumps(description, sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True)
class Result:
    """Outcomes of a complete case; columns are sorted by the index of the examples."""

    description: dict[str, Any]  # suite, case, n, and further settings of the case
    columns: dict[str, np.ndarray[Any, Any]]
    flags: list[str]
    seconds: float
    measured: str = ""  # date of the last batch; empty in files of older versions


class Outcomes:
    """Outcomes in a folder. Each process appends to its own file, and reads the files of all processes."""

    def __init__(self, folder: Path, rank: int = 0):
        self.folder, self.path = folder, folder / OUTCOMES.format(rank)
        self._whole = False

    def lines(self) -> list[dict[str, Any]]:
        """One line per finished batch; the first, if two processes finished the same batch in two attempts."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for path in sorted(self.folder.glob(OUTCOMES.format("*"))):
            for line in read_jsonl(path):
                _check_line(path, line)
                found.setdefault((line["case"], line["batch"]), line)
        return list(found.values())

    def done(self) -> set[tuple[str, int]]:
        """Case and number of each finished batch."""
        return {(line["case"], line["batch"]) for line in self.lines()}

    def append(self, case: str, batch: int, columns: Mapping[str, Any], seconds: float) -> None:
        told = {"case": case, "batch": batch, "seconds": round(seconds, 3), "date": date.today().isoformat()}
        line = json.dumps(told | dict(columns), ensure_ascii=False)
        with writing(self.path), open(self.path, "ab") as file:
            if not self._whole:  # the last line may be incomplete after a kill
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)
                self._whole = True
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def results(self) -> list[Result]:
        """Results of the complete cases."""
        by_case: dict[str, list[dict[str, Any]]] = {}
        for line in self.lines():
            by_case.setdefault(line["case"], []).append(line)
        made = (_result(json.loads(key), lines) for key, lines in by_case.items())
        return [result for result in made if result is not None]


def _result(description: dict[str, Any], lines: list[dict[str, Any]]) -> Result | None:
    """Result of a case; None if batches are missing."""
    lines = sorted(lines, key=lambda line: line["batch"])
    columns = {name: np.array([x for line in lines for x in line[name]]) for name in _columns(lines[0])}
    if len(columns["index"]) != description["n"]:
        return None
    order = np.argsort(columns["index"], kind="stable")
    flags = list(dict.fromkeys(flag for line in lines for flag in line.get("flags", ())))
    seconds = sum(line["seconds"] for line in lines)
    measured = max(line.get("date", "") for line in lines)
    return Result(description, {name: x[order] for name, x in columns.items()}, flags, seconds, measured)


def _columns(line: Mapping[str, Any]) -> list[str]:
    return [name for name, x in line.items() if isinstance(x, list) and name != "flags"]


def _check_line(path: Path, line: Any) -> None:
    """Raise `InputError` for a line that was not written by `append`."""
    wrong = f"{path} is damaged: it holds {str(line)[:80]}; choose another --out"
    if not isinstance(line, dict) or not {"case", "batch", "index", "seconds"} <= set(line):
        raise InputError(wrong)
    numbers = isinstance(line["batch"], int) and isinstance(line["seconds"], int | float)
    if not numbers or not isinstance(line["case"], str) or not isinstance(line["index"], list):
        raise InputError(wrong)
    try:
        description = json.loads(line["case"])
    except ValueError:
        raise InputError(wrong) from None
    if not isinstance(description, dict) or not {"suite", "case", "n"} <= set(description):
        raise InputError(wrong)
    named = set(line) - {"case", "batch", "seconds", "date", "flags"}
    if named != set(_columns(line)) or any(len(line[name]) != len(line["index"]) for name in named):
        raise InputError(wrong)


def open_outcomes(folder: Path, settings: Mapping[str, Any], rank: int) -> Outcomes:
    """Open the outcomes of a folder; raises `InputError` if its earlier outcomes were made with other settings."""
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
    """Settings of the evaluation in a folder."""
    path = folder / EVALUATION
    if not path.is_file():
        raise InputError(f"{folder} holds no evaluation; expected the output folder of principal evaluate")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as wrong:
        raise InputError(f"{path} is damaged ({wrong}); choose another --out") from wrong
    if not isinstance(found, dict) or "model" not in found:
        raise InputError(f"{path} is damaged: it holds {found!r}, without a model; choose another folder")
    return found
