"""Training loop: steps, learning rate, weight averaging, checkpoints. Model, data and loss are defined by a `Task`.

Every random number is a function of the seed and the step, so a checkpoint needs no generator states, and a resumed run
is the same as one without interruption.
"""

import math
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from timm.optim import create_optimizer_v2, list_optimizers
from timm.scheduler.cosine_lr import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from ..errors import InputError, Interrupted, TrainingError, hint
from ..plumbing.layout import CHECKPOINTS
from ..plumbing.processes import Place, raise_together
from ..plumbing.seeds import seed_all
from ..recipes import Recipe
from . import checkpoints
from .batches import BatchPlan
from .logs import Log


class Task(ABC):
    """Base class of tasks: model, data and loss of a training run. Each kind of model has a subclass."""

    model: nn.Module
    plan: BatchPlan
    track: Callable[[nn.Module], dict[str, float]] | None = None  # measures before training and after each epoch

    @abstractmethod
    def batches(self, steps: range, place: Place) -> Iterator[Any]:
        """This process's parts of the batches of `steps`; an `InputError` in place of a broken batch."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any, step: int) -> Tensor:
        """Mean loss of a batch."""

    @abstractmethod
    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Validation metrics."""

    def watched(self) -> dict[str, float]:
        """Further values for a line of the log, over the steps since the last line."""
        return {}

    def digest(self) -> str | None:
        """Hash of the training and validation data, checked when a run is resumed; None if it would take too long."""
        return None

    @abstractmethod
    def finish(self, model: nn.Module, accelerator: Accelerator) -> list[dict[str, Any]]:
        """Records of a finished run; called in every process."""

    @abstractmethod
    def save(self, folder: Path, model: nn.Module) -> None:
        """Write the model's files to the folder of a run, atomically."""

    @abstractmethod
    def headline(self, metrics: dict[str, float]) -> str:
        """Summary of the last evaluation in a few words."""


class Trainer:
    """Training of one task by a recipe, into a folder."""

    def __init__(self, task: Task, recipe: Recipe, folder: Path, accelerator: Accelerator, log: Log):
        self.task, self.recipe, self.folder, self.accelerator, self.log = task, recipe, folder, accelerator, log
        self.track = task.track if accelerator.is_main_process else None
        self.step = 0
        self.total = total_steps(recipe, task.plan.epoch_steps)
        self.place = Place(accelerator.process_index, accelerator.num_processes)
        raw = task.model.to(accelerator.device)
        self.ema = ModelEmaV3(raw, decay=recipe.training.ema) if recipe.training.ema else None
        optimizer = make_optimizer(recipe, raw)
        self.schedule = make_schedule(recipe, optimizer, task.plan.epoch_steps)
        self.model, self.optimizer = accelerator.prepare(raw, optimizer)
        self.raw = raw
        self.resumed = False
        self.first_look: dict[str, float] | None = None
        self.batches: Iterator[Any] = iter(())
        self.losses: list[float] = []  # losses since the last line of the log
        self.waiting = 0.0  # seconds spent waiting for data
        self._asked = self._stop = False  # whether this process, or any process, was asked to stop

    @property
    def best_weights(self) -> nn.Module:
        """Model with averaged weights, if the recipe has weight averaging, else the model itself."""
        return self.ema.module if self.ema is not None else self.raw

    def begin(self, resume: bool) -> None:
        """Prepare the first step; raises all errors that can be found before training."""
        if resume:
            self._load()
        self.resumed = resume
        self.first_look = self._look() if self.step == 0 else None
        self.batches = self.task.batches(range(self.step, self.total), self.place)

    def run(self) -> dict[str, float]:
        """Train to the end and return the last evaluation."""
        self.log.start(self.step, self.total, self.resumed)
        if self.accelerator.is_main_process:
            checkpoints.tidy(self.folder / CHECKPOINTS, self.step)
        try:
            if self.step == 0:
                self._log_track(self.first_look)
            with _signals(self._ask_to_stop):
                return self._steps() if self.step < self.total else self._evaluate(0.0, again=True)
        finally:
            self.batches = iter(())  # ends the data loader's workers
            self.log.close()

    def _ask_to_stop(self) -> None:
        self._asked = True

    def _steps(self) -> dict[str, float]:
        per_epoch, every = self.task.plan.epoch_steps, self.recipe.training.log_every
        started = logged = saved = time.perf_counter()
        metrics: dict[str, float] = {}
        for step in range(self.step, self.total):
            loss, norm = self._one(step)
            self.step = step + 1
            self.losses.append(loss)
            now, ends = time.perf_counter(), self.step % per_epoch == 0 or self.step == self.total
            if self.step % every == 0 or ends:
                rate = len(self.losses) * self.task.plan.batch_size / (now - logged)
                line = {
                    "step": self.step, "epoch": self.step / per_epoch, "loss": sum(self.losses) / len(self.losses),
                    "lr": self.optimizer.param_groups[0]["lr"], "grad_norm": norm,
                    "examples_per_second": round(rate, 1), "waiting_share": round(self.waiting / (now - logged), 4),
                }  # fmt: skip
                self.log.line(line | self.task.watched())
                self.log.advance(self.step, f"loss {line['loss']:.3f}")
                self.losses, self.waiting, logged = [], 0.0, now
            if ends:
                metrics = self._evaluate(time.perf_counter() - started)
                logged = time.perf_counter()
            late = time.perf_counter() - saved > 60 * self.recipe.training.checkpoint_minutes
            if ends or late or self._stop:
                self._save()
                saved = time.perf_counter()
            if self._stop and self.step < self.total:
                raise Interrupted(f"stopped after step {self.step} of {self.total}; continue with --resume")
        return metrics

    def _one(self, step: int) -> tuple[float, float]:
        """Do one optimizer step; returns the mean loss of the whole batch and the norm of the gradient."""
        accumulate = self.recipe.training.accumulate
        self.model.train()
        if self.recipe.schedule.per == "epoch":
            self.schedule.step(step // self.task.plan.epoch_steps)
        else:
            self.schedule.step_update(step)
        total = torch.zeros((), device=self.accelerator.device)
        for turn in range(accumulate):
            batch = self._next()
            together = turn == accumulate - 1
            with nullcontext() if together else self.accelerator.no_sync(self.model):
                seed_all("step", self.recipe.seed, step, turn * self.place.world + self.place.rank)
                loss = self.task.loss(self.model, batch, step) / accumulate
                self.accelerator.backward(loss)
            total += loss.detach()
        # The processes exchange, together with the loss, whether one of them was asked to stop.
        mean, stop = self.accelerator.reduce(torch.stack([total, total.new_tensor(self._asked)]), "mean").tolist()
        self._stop = stop > 0
        clip = self.recipe.optimizer.clip
        norm = float(self.accelerator.clip_grad_norm_(self.model.parameters(), clip or math.inf))
        scaled = self.accelerator.scaler is not None  # the gradient scaler of float16 handles overflow
        if not math.isfinite(mean) or not (math.isfinite(norm) or scaled):
            self.optimizer.zero_grad()
            raise self._diverged(step, mean, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(self.raw)
        return mean, norm

    def _next(self) -> Any:
        start = time.perf_counter()
        batch = next(self.batches)
        self.waiting += time.perf_counter() - start
        raise_together(batch if isinstance(batch, InputError) else None, self.accelerator)
        return batch

    def _diverged(self, step: int, loss: float, norm: float) -> TrainingError:
        """Error for a NaN or infinite loss or gradient. Discards a checkpoint of the current step, which would diverge
        again, if an earlier one exists."""
        folder = self.folder / CHECKPOINTS
        kept = checkpoints.discard(folder, self.step) if self.accelerator.is_main_process else None
        what = "loss" if not math.isfinite(loss) else "norm of the gradient"
        value = loss if not math.isfinite(loss) else norm
        then = f"{kept} is kept" if kept else "there was no checkpoint yet"
        return TrainingError(
            f"the {what} is {value} at step {step + 1}; {then}; continue with --resume and a lower optimizer.lr or "
            "optimizer.clip"
        )

    def _evaluate(self, seconds: float, again: bool = False) -> dict[str, float]:
        metrics = self.task.evaluate(self.best_weights, self.accelerator)
        epoch, of = self.step / self.task.plan.epoch_steps, self.total / self.task.plan.epoch_steps
        if again:  # a finished run was resumed; its metrics are in the log already
            return metrics
        self.log.line(
            {"step": self.step, "epoch": round(epoch, 3), **{f"validation_{k}": v for k, v in metrics.items()}}
        )
        self._log_track(self._look())
        shown = " · ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self.log.say(f"epoch {epoch:.4g} of {of:.4g} · {shown} · {seconds / 60:.1f} minutes")
        return metrics

    def _look(self) -> dict[str, float] | None:
        return self.track(self.best_weights) if self.track is not None else None

    def _log_track(self, found: dict[str, float] | None) -> None:
        if found is not None:
            self.log.line({"step": self.step, "epoch": self.step // self.task.plan.epoch_steps, **found})

    def _save(self) -> None:
        if not self.accelerator.is_main_process:
            return  # all processes hold the same state
        tensors, plain = checkpoints.flatten_optimizer(self.optimizer.optimizer)
        parts = {"model": self.raw.state_dict(), "optimizer": tensors}
        if self.ema is not None:
            parts["ema"] = self.ema.module.state_dict()
        scaler = self.accelerator.scaler
        state = {
            "optimizer": plain, "scaler": None if scaler is None else scaler.state_dict(), "losses": self.losses,
        }  # fmt: skip
        checkpoints.save(self.folder / CHECKPOINTS, self.step, parts, state)

    def _load(self) -> None:
        found = checkpoints.load(self.folder / CHECKPOINTS, self.log.say)
        if found is None:
            return
        parts, state = found
        if state["step"] > self.total:
            raise InputError(
                f"the run in {self.folder} has done {state['step']} steps; the recipe has only {self.total}"
            )
        try:
            self.raw.load_state_dict(parts["model"])
            if self.ema is not None:
                self.ema.module.load_state_dict(parts["ema"])
            checkpoints.restore_optimizer(self.optimizer.optimizer, parts["optimizer"], state["optimizer"])
            if self.accelerator.scaler is not None and state["scaler"]:
                self.accelerator.scaler.load_state_dict(state["scaler"])
        except (KeyError, RuntimeError, ValueError) as wrong:
            raise InputError(f"the checkpoint in {self.folder} does not fit this recipe: {wrong}") from wrong
        self.step, self.losses = state["step"], state["losses"]
        self.log.say(f"continuing after step {self.step} of {self.total}")


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    given = recipe.optimizer
    known = list_optimizers()
    if given.name.removeprefix("lookahead_") not in known:
        nearest = hint(given.name, known, "expected one of timm.optim.list_optimizers()")
        raise InputError(f"optimizer.name is {given.name!r}; {nearest}")
    options: dict[str, Any] = {"betas": given.betas} if given.betas else {}
    options |= {"lr": recipe.learning_rate, "weight_decay": given.weight_decay, "momentum": given.momentum}
    try:
        return create_optimizer_v2(model, given.name, **options)  # type: ignore[no-any-return]
    except (ValueError, AssertionError, TypeError) as wrong:
        raise InputError(f"the optimizer {given.name} does not take {options}: {wrong}") from wrong


def total_steps(recipe: Recipe, epoch_steps: int) -> int:
    return recipe.schedule.steps or epoch_steps * recipe.schedule.epochs


def make_schedule(recipe: Recipe, optimizer: torch.optim.Optimizer, epoch_steps: int) -> CosineLRScheduler:
    given = recipe.schedule
    unit = 1 if given.per == "epoch" else epoch_steps
    warmup = given.warmup_steps if given.warmup_steps is not None else round(given.warmup_epochs * unit)
    if given.per == "step" and warmup and warmup >= total_steps(recipe, epoch_steps):
        raise InputError(
            f"the warm-up has {warmup} steps and the training {total_steps(recipe, epoch_steps)}: "
            "lower schedule.warmup_steps or schedule.warmup_epochs"
        )
    return CosineLRScheduler(
        optimizer, t_initial=max(2, given.epochs if given.per == "epoch" else total_steps(recipe, epoch_steps)),
        lr_min=given.min_lr, warmup_t=warmup, warmup_lr_init=given.warmup_lr, t_in_epochs=given.per == "epoch",
    )  # fmt: skip


@contextmanager
def _signals(act: Callable[[], None]) -> Iterator[None]:
    """Context manager in which Ctrl-C and SIGTERM call `act` instead of ending the process."""
    wanted = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, lambda *_: act()) for number in wanted}
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
