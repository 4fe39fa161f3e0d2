"""A run: a folder with its recipe, its checkpoints, its numbers, and at the end its model.

recipe.yaml  metrics.jsonl  records.jsonl  tensorboard/  checkpoints/  model.safetensors  config.json
and of texts: tokenizer.json  data.sha256
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs
from rich.progress import Progress
from torch import nn

from ..errors import InputError
from ..evaluation.identity import check_finished
from ..plumbing.files import write_jsonl, write_text
from ..plumbing.layout import DIGEST, RECIPE, RECORDS
from ..recipes import ImageRecipe, LanguageRecipe, Recipe, TextRecipe, read_recipe, write_recipe
from ..recipes.schema import WORDS
from .engine import Task, Trainer
from .logs import Log, RunLog

# What a checkpoint's position and weights only make sense with; everything else may change when a run is resumed.
_FIXED = ("task", "model", "init_from", "robustify", "data", "seed")
_FIXED_KEYS = (("training", "batch_size"), ("training", "ema"), ("augment", "repeats"), ("optimizer", "name"))
_PRECISION = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Run:
    folder: Path
    metrics: dict[str, float]
    headline: str
    parameters: int


def train(
    recipe: Recipe, out: Path | None = None, *, resume: bool = False, progress: Progress | None = None,
    tensorboard: bool = True,
) -> Run:  # fmt: skip
    """Train a recipe into a folder. Under `torchrun` every process calls this; the first one writes."""
    folder = Path(out) if out is not None else Path("runs") / f"{recipe.name}-{recipe.seed}"
    accelerator = _accelerator(recipe)
    main = accelerator.is_main_process
    log = RunLog(folder, recipe.name, progress, tensorboard=tensorboard) if main else Log()
    recipe = _anchored(recipe)
    _check_folder(folder, recipe, resume, log)
    accelerator.wait_for_everyone()  # the others look at the folder before the first one writes to it
    task, track = _task(recipe, accelerator.num_processes)
    trainer = Trainer(task, recipe, folder, accelerator, log, track)
    digest = task.digest()
    _check_data(folder, digest)
    trainer.begin(resume)
    accelerator.wait_for_everyone()  # the others compare the folder before the first one writes to it
    if main:  # from here on the folder is a run's: nothing of the recipe is wrong
        if digest is not None:
            write_text(folder / DIGEST, digest + "\n")
        write_recipe(folder / RECIPE, recipe)
        if trainer.step < trainer.total:  # trained further, a run is not finished any more
            (folder / RECORDS).unlink(missing_ok=True)
    metrics = trainer.run()
    records = task.finish(trainer.best_weights, accelerator)
    if main:
        task.save(folder, trainer.best_weights)
        write_jsonl(folder / RECORDS, records)  # last: where they are, the run is finished
    accelerator.wait_for_everyone()
    accelerator.free_memory()
    return Run(folder, metrics, task.headline(metrics), sum(p.numel() for p in trainer.raw.parameters()))


def _task(recipe: Recipe, processes: int) -> tuple[Task, Callable[[nn.Module], dict[str, float]] | None]:
    """What the recipe is about, and who looks on; each kind brings libraries that the others do not need."""
    if isinstance(recipe, ImageRecipe):
        from .images import ImageTask

        images = ImageTask(recipe, processes)
        if not recipe.track:
            return images, None
        from .track import KernelPCATracker

        return images, KernelPCATracker(images.held)
    if recipe.init_from is not None:
        check_finished(recipe.init_from)
    if isinstance(recipe, LanguageRecipe):
        from .language import LanguageTask

        return LanguageTask(recipe), None
    from .texts import TextTask

    assert isinstance(recipe, TextRecipe)
    return TextTask(recipe), None


def _accelerator(recipe: Recipe) -> Accelerator:
    precision = recipe.training.precision
    if precision == "float16" and not torch.cuda.is_available():
        raise InputError("training.precision is float16, which needs a GPU; use bfloat16 or float32")
    AcceleratorState._reset_state()  # of a run before this one in the same process; the process group stays
    # Queries that the symmetric form does not ask for get no gradient, which processes otherwise wait for.
    idle = recipe.robustify is not None and recipe.robustify.form == "symmetric"
    return Accelerator(
        cpu=not torch.cuda.is_available(), mixed_precision=_PRECISION[precision],
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=idle)],
    )  # fmt: skip


def _anchored(recipe: Recipe) -> Recipe:
    """With whole paths, so that a run can be resumed from any folder."""

    def whole(path: str) -> str:
        timm = path[: path.index("@") + 1] if path.startswith("timm:") and "@" in path else ""
        prefix = "hf:" if path.startswith("hf:") else timm
        found = Path(path.removeprefix(prefix)).expanduser()
        return f"{prefix}{found.resolve()}" if found.exists() else path

    update = {"source": whole(recipe.data.source)}
    if isinstance(recipe, LanguageRecipe) and recipe.data.tokenizer != WORDS:
        update["tokenizer"] = whole(recipe.data.tokenizer)
    data = recipe.data.model_copy(update=update)
    start = whole(recipe.init_from) if recipe.init_from else None
    return recipe.model_copy(update={"data": data, "init_from": start})


def _check_folder(folder: Path, recipe: Recipe, resume: bool, log: Log) -> None:
    before = folder / RECIPE
    if not before.exists():
        if resume:
            log.say(f"there is no run in {folder} yet: starting one")
        return
    if not resume:
        raise InputError(f"there is already a run in {folder}: continue it with --resume, or choose another --out")
    old, new = read_recipe(before).model_dump(), recipe.model_dump()
    for place, was, now in _differences(old, new):
        if place[0] in _FIXED or place[:2] in _FIXED_KEYS:
            raise InputError(
                f"the run in {folder} was started with {'.'.join(place)}={was}, not {now}: "
                "that cannot change on the way"
            )
        log.say(f"continuing with {'.'.join(place)}={now} instead of {was}")


def _check_data(folder: Path, digest: str | None) -> None:
    kept = folder / DIGEST
    if digest is None or not kept.exists() or not (folder / RECIPE).exists():
        return
    if kept.read_text(encoding="utf-8").strip() != digest:
        raise InputError(f"the texts or their tokens are not those that the run in {folder} began with")


def _differences(old: Any, new: Any, place: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            each for key in {**old, **new} for each in _differences(old.get(key), new.get(key), (*place, key))
        ]  # fmt: skip
    return [] if old == new else [(place, old, new)]
