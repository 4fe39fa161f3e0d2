"""Train a recipe into a folder of recipe, checkpoints, log and model; `plumbing/layout.py` lists the files."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs
from rich.progress import Progress

from ..adapt.describe import describe
from ..adapt.named import ModelRef
from ..errors import InputError
from ..plumbing.files import write_jsonl, write_text
from ..plumbing.layout import DIGEST, RECIPE, RECORDS
from ..plumbing.outputs import output_folder
from ..plumbing.processes import held_by_first
from ..plumbing.records import MEASURED
from ..plumbing.sections import check
from ..recipes import Recipe, read_content, write_recipe
from .engine import Task, Trainer
from .logs import Log, RunLog
from .precision import resolve

_PRECISION = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Run:
    """Finished run."""

    folder: Path
    metrics: dict[str, float]  # last evaluation
    headline: str  # summary of the last evaluation
    parameters: int  # number of parameters
    tracked: bool = False  # whether the log holds kernel PCA metrics


def train(
    recipe: Recipe, make_task: Callable[[Any, int], Task], out: Path | None = None, *, resume: bool = False,
    progress: Progress | None = None, tensorboard: bool = True,
) -> Run:  # fmt: skip
    """Train a recipe into a folder. Under `torchrun`, every process calls this function, and the first one writes.

    Args:
        make_task: function from the recipe and the number of processes to the task.
        out: folder of the run. Default: runs/NAME-SEED.
        resume: continue from the newest intact checkpoint. Default: False.
    """
    folder = Path(out) if out is not None else Path("runs") / f"{recipe.name}-{recipe.seed}"
    accelerator = _accelerator(recipe)
    first = accelerator.is_main_process
    log = RunLog(folder, recipe.name, progress, tensorboard=tensorboard) if first else Log()
    with held_by_first(accelerator, output_folder(folder, "a training run")):
        return _train(recipe.anchored(), make_task, folder, resume, accelerator, log)


def _train(
    recipe: Recipe,
    make_task: Callable[[Any, int], Task],
    folder: Path,
    resume: bool,
    accelerator: Accelerator,
    log: Log,
) -> Run:
    main = accelerator.is_main_process
    _check_folder(folder, recipe, resume, log)
    accelerator.wait_for_everyone()  # all processes check the folder before the first one writes to it
    if recipe.init_from is not None:
        ModelRef.of(recipe.init_from).check_finished()
    task = make_task(recipe, accelerator.num_processes)
    trainer = Trainer(task, recipe, folder, accelerator, log)
    digest = task.digest()
    _check_data(folder, digest)
    trainer.begin(resume)
    accelerator.wait_for_everyone()  # all processes compare the folder before the first one writes to it
    if main:  # the recipe is valid, so the folder becomes that of a run
        if digest is not None:
            write_text(folder / DIGEST, digest + "\n")
        write_recipe(folder / RECIPE, recipe)
        if trainer.step < trainer.total:  # a run that is trained further is unfinished
            (folder / RECORDS).unlink(missing_ok=True)
    metrics = trainer.run()
    facts = {"task": recipe.task, MEASURED: date.today().isoformat()} | (
        {"robustify": held} if (held := describe(trainer.raw)) else {}
    )
    records = [each | facts for each in task.finish(trainer.best_weights, accelerator)]
    if main:
        task.save(folder, trainer.best_weights)
        write_jsonl(folder / RECORDS, records)  # written last: they mark a finished run
    accelerator.wait_for_everyone()
    accelerator.free_memory()
    parameters = sum(p.numel() for p in trainer.raw.parameters())
    return Run(folder, metrics, task.headline(metrics), parameters, tracked=task.track is not None)


def _accelerator(recipe: Recipe) -> Accelerator:
    precision = resolve(recipe.training.precision)
    AcceleratorState._reset_state()  # state of an earlier run in the same process; the process group stays
    # The query projection, unused in the symmetric form, gets no gradient, for which DDP would wait otherwise.
    idle = recipe.robustify is not None and recipe.robustify.form == "symmetric"
    return Accelerator(
        cpu=not torch.cuda.is_available(), mixed_precision=_PRECISION[precision],
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=idle)],
    )  # fmt: skip


def _check_folder(folder: Path, recipe: Recipe, resume: bool, log: Log) -> None:
    before = folder / RECIPE
    if not before.exists():
        if resume:
            log.say(f"there is no run in {folder} yet; starting one")
        return
    if not resume:
        raise InputError(f"there is already a run in {folder}; continue it with --resume, or choose another --out")
    content = read_content(before)
    same = content.get("task", recipe.task) == recipe.task  # keys of later versions get their defaults
    old = check(type(recipe), content, f"recipe {before}").model_dump() if same else content
    new = recipe.model_dump()
    for place, was, now in _differences(old, new):
        if place[0] in recipe.fixed or ".".join(place[:2]) in recipe.fixed:
            raise InputError(
                f"the run in {folder} was started with {'.'.join(place)}={was}, not {now}; "
                "that cannot change when a run is resumed"
            )
        log.say(f"continuing with {'.'.join(place)}={now} instead of {was}")


def _check_data(folder: Path, digest: str | None) -> None:
    kept = folder / DIGEST
    if digest is None or not kept.exists() or not (folder / RECIPE).exists():
        return
    if kept.read_text(encoding="utf-8").strip() != digest:
        raise InputError(f"the training or validation data differ from those that the run in {folder} started with")


def _differences(old: Any, new: Any, place: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any, Any]]:
    """Differing values of two nested dicts, as (keys, old value, new value)."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            each for key in {**old, **new} for each in _differences(old.get(key), new.get(key), (*place, key))
        ]  # fmt: skip
    return [] if old == new else [(place, old, new)]
