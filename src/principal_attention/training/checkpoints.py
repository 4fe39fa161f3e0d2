"""What a run can be continued from: tensors as safetensors, everything else as JSON, each file with its digest.

    checkpoints/step-00000120/{model,optimizer,ema}.safetensors, state.json

A checkpoint appears under its name only when it is whole; the two newest are kept.
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

KEEP = 2
_NAME = re.compile(r"step-\d{8}")
_GIVEN = ("lr", "initial_lr", "weight_decay", "betas", "momentum")  # what a recipe says of an optimizer
Tensors = dict[str, Tensor]


def save(folder: Path, step: int, parts: dict[str, Tensors], state: dict[str, Any]) -> Path:
    """Write a checkpoint, then remove the ones beyond the newest two."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{step:08d}"
    if final.exists():
        return final  # a step's state is always the same
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
        left = f"{kept[0].name} is still there" if kept else "there is none before it"
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else wrong
        raise OSError(
            f"the checkpoint of step {step} could not be written to {folder} ({reason}); {left}: "
            "make room and continue with --resume"
        ) from wrong
    tidy(folder, step)
    return final


def tidy(folder: Path, step: int) -> None:
    """Remove the checkpoints beyond the newest two, up to the one that a run is at, and what a kill left half done."""
    old = [path for path in newest(folder)[KEEP:] if path.name < f"step-{step:08d}"]
    for path in (*old, *folder.glob(".step-*.partial")):
        shutil.rmtree(path, ignore_errors=True)


def newest(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)), reverse=True)


def discard(folder: Path, step: int) -> Path | None:
    """Remove the checkpoint of a step that leads nowhere, if there is one before it; return the newest that is left."""
    found = newest(folder)
    if len(found) > 1 and found[0].name == f"step-{step:08d}":
        shutil.rmtree(found.pop(0), ignore_errors=True)
    return found[0] if found else None


def load(folder: Path, say: Callable[[str], None]) -> tuple[dict[str, Tensors], dict[str, Any]] | None:
    """The newest checkpoint that is whole, or None where there is none at all."""
    found = newest(folder)
    for path in found:
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as wrong:
            say(f"{path} is damaged ({wrong}); looking at the one before it")
    if found:
        raise InputError(f"every checkpoint in {folder} is damaged; start again in another folder with --out")
    return None


def _read(path: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if not isinstance(state["step"], int):
        raise ValueError(f"its step is {state['step']!r}")
    for name, expected in state["digests"].items():
        if digest(path / name) != expected:
            raise ValueError(f"{name} is not what was written")
    return {name.removesuffix(".safetensors"): load_file(path / name) for name in state["digests"]}, state


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """An optimizer's state as named tensors and plain values."""
    state = optimizer.state_dict()
    entries = {f"{index}.{name}": value for index, held in state["state"].items() for name, value in held.items()}
    entries |= {f"group{i}.{k}": v for i, group in enumerate(state["param_groups"]) for k, v in group.items()}
    tensors = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
    return tensors, {key: value for key, value in entries.items() if key not in tensors}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors, plain: dict[str, Any]) -> None:
    """The state, and the running values of the groups; what the recipe says of these stays as it is."""
    state: dict[int, dict[str, Any]] = {}
    groups = optimizer.state_dict()["param_groups"]
    for key, value in (tensors | plain).items():
        place, _, name = key.partition(".")
        if place.isdecimal():
            state.setdefault(int(place), {})[name] = value
        elif name not in _GIVEN:
            groups[int(place.removeprefix("group"))][name] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})
