"""The model that a command opens: that of a finished run, or of the newest checkpoint (`--checkpoint last`)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from ..adapt.named import ModelRef
from ..errors import InputError
from ..plumbing.layout import CHECKPOINTS, RECIPE
from .registry import kind_named
from .run import read_recipe

LAST = "last"
HELP = "Checkpoint of a run to use: `last`, the newest one. Default: the model of the finished run."


@contextmanager
def model_at(ref: ModelRef, checkpoint: str | None) -> Iterator[ModelRef]:
    """Context manager that yields the model to open.

    A checkpoint holds tensors only, so its model is saved to a temporary folder, named after the run and the step.
    """
    if checkpoint is None:
        ref.check_finished(f"use its newest checkpoint with --checkpoint {LAST}")
        yield ref
        return
    if checkpoint != LAST:
        raise InputError(f"--checkpoint is {checkpoint!r}; expected {LAST}, the newest one")
    if ref.library != "folder" or not (ref.folder / RECIPE).is_file():
        raise InputError(f"--checkpoint was given and the model is {ref.given}; expected the folder of a run")
    with TemporaryDirectory(prefix="principal-") as temporary:
        yield replace(ref, place=str(_save_newest(ref, Path(temporary))))


def _save_newest(ref: ModelRef, parent: Path) -> Path:
    """Save the model of a run's newest checkpoint to a new folder under `parent`; returns the folder."""
    from ..training import checkpoints

    recipe = read_recipe(ref.folder)
    found = checkpoints.load(ref.folder / CHECKPOINTS, lambda line: print(line, file=sys.stderr))
    if found is None:
        raise InputError(f"the run in {ref.given} has no checkpoint yet")
    parts, state = found
    if hasattr(recipe, "track"):
        recipe = recipe.model_copy(update={"track": False})  # nothing is trained
    task = kind_named(recipe.task).task(recipe, 1)
    try:
        task.model.load_state_dict(parts.get("ema", parts["model"]))
    except (KeyError, RuntimeError) as wrong:
        raise InputError(f"the checkpoint in {ref.given} does not match its recipe: {wrong}") from wrong
    folder = parent / f"{ref.name}@step-{state['step']}"
    folder.mkdir()
    task.save(folder, task.model)
    copyfile(ref.folder / RECIPE, folder / RECIPE)
    return folder
