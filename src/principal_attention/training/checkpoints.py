"""Checkpoints of a run: tensors as safetensors, everything else as JSON, with a digest of each safetensors file.

    checkpoints/step-00000120/{model,optimizer,ema}.safetensors, state.json

A checkpoint gets its name only when it is complete; the two newest are kept.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import InputError
from ..plumbing.files import sync, write_text

KEEP = 2  # number of checkpoints that are kept
_NAME = re.compile(r"step-\d{8}")
_GIVEN = ("lr", "initial_lr", "weight_decay", "betas", "momentum")  # settings of an optimizer that a recipe defines
Tensors = dict[str, Tensor]


def save(folder: Path, step: int, parts: dict[str, Tensors], state: dict[str, Any]) -> Path:
    """Write a checkpoint, remove all but the newest two, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:08d}"
    if final.exists():
        return final  # the state after a step is always the same
    partial = folder / f".{final.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        digests = {}
        for name, tensors in parts.items():
            file = partial / f"{name}.safetensors"
            save_file({key: t.detach().cpu().contiguous().clone() for key, t in tensors.items()}, file)
            sync(file)
            digests[file.name] = digest(file)
        write_text(partial / "state.json", json.dumps({"step": step, "digests": digests, **state}, indent=1))
        os.replace(partial, final)
        sync(folder)
    except (OSError, SafetensorError) as wrong:
        shutil.rmtree(partial, ignore_errors=True)
        kept = newest(folder)
        left = f"{kept[0].name} is kept" if kept else "there is no earlier checkpoint"
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else wrong
        raise OSError(
            f"the checkpoint of step {step} could not be written to {folder} ({reason}); {left}; "
            "make room and continue with --resume"
        ) from wrong
    tidy(folder, step)
    return final


def tidy(folder: Path, step: int) -> None:
    """Remove checkpoints before `step` except the newest two, and incomplete checkpoints."""
    old = [path for path in newest(folder)[KEEP:] if path.name < f"step-{step:08d}"]
    for path in (*old, *folder.glob(".step-*.partial")):
        shutil.rmtree(path, ignore_errors=True)


def newest(folder: Path) -> list[Path]:
    """Checkpoints in a folder, newest first."""
    return sorted((path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)), reverse=True)


def discard(folder: Path, step: int) -> Path | None:
    """Remove the checkpoint of a step after which training diverged, if an earlier one exists; returns the newest."""
    found = newest(folder)
    if len(found) > 1 and found[0].name == f"step-{step:08d}":
        shutil.rmtree(found.pop(0), ignore_errors=True)
    return found[0] if found else None


def load(folder: Path, say: Callable[[str], None]) -> tuple[dict[str, Tensors], dict[str, Any]] | None:
    """Newest intact checkpoint; None if there are no checkpoints. `say`: function that prints a warning."""
    found = newest(folder)
    for path in found:
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as wrong:
            say(f"{path} is damaged ({wrong}); trying the checkpoint before it")
    if found:
        raise InputError(f"every checkpoint in {folder} is damaged; start again in another folder with --out")
    return None


def _read(path: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if not isinstance(state["step"], int):
        raise ValueError(f"its step is {state['step']!r}")
    for name, expected in state["digests"].items():
        if digest(path / name) != expected:
            raise ValueError(f"the digest of {name} differs")
    return {name.removesuffix(".safetensors"): load_file(path / name) for name in state["digests"]}, state


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """State of an optimizer as named tensors and plain values."""
    state = optimizer.state_dict()
    entries = {f"{index}.{name}": value for index, held in state["state"].items() for name, value in held.items()}
    entries |= {f"group{i}.{k}": v for i, group in enumerate(state["param_groups"]) for k, v in group.items()}
    tensors = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in entries.items() if key not in tensors}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors, plain: dict[str, Any]) -> None:
    """Restore the state of an optimizer and of its parameter groups, except the settings that the recipe defines."""
    state: dict[int, dict[str, Any]] = {}
    groups = optimizer.state_dict()["param_groups"]
    for key, value in (tensors | plain).items():
        place, _, name = key.partition(".")
        if place.isdecimal():
            state.setdefault(int(place), {})[name] = value
        elif name not in _GIVEN:
            groups[int(place.removeprefix("group"))][name] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})
