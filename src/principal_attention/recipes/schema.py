"""The keys that every recipe has, their ranges and defaults; a kind of task adds its own."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ..adapt.named import ModelRef, whole
from ..adapt.spec import Robustify
from ..plumbing.sections import Count, NotNegative, Positive, Section, Share, Whole


class Model(Section):
    """A model from scratch: of images a name that timm knows, ours among them; of texts one of ours; and options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class Data(Section):
    source: Annotated[str, Field(min_length=1)]  # a name on the hub, a parquet file or a folder of them
    subset: str | None = None  # the hub's configuration name
    train: str = "train"
    validation: str | None = None  # the first of validation, val, test that is there
    holdout: Whole = 0  # take this many of the training examples for validation instead
    limit: Count | None = None  # use only so many examples of each split

    @property
    def paths(self) -> tuple[str, ...]:
        """The keys that may hold paths."""
        return ("source",)

    @property
    def splits(self) -> dict[str, Any]:
        """The keys that say which examples of the source are meant."""
        return self.model_dump(include={"subset", "train", "validation", "holdout", "limit"})


class Optimizer(Section):
    name: str = "adamw"  # timm's names
    lr: Annotated[float, Field(gt=0, le=1e30)] = 1e-3  # single precision ends there
    lr_batch: Count | None = None  # lr is for this batch size, and grows with the real one
    weight_decay: NotNegative = 0.05
    momentum: Share = 0.9
    betas: tuple[Share, Share] | None = None
    clip: Positive | None = None  # largest norm of the gradient


class Schedule(Section):
    epochs: Count = 10
    steps: Count | None = None  # train so many steps instead
    warmup_epochs: NotNegative = 0
    warmup_steps: Whole | None = None  # instead
    warmup_lr: NotNegative = 1e-6
    min_lr: NotNegative = 1e-5
    per: Literal["step", "epoch"] = "step"  # how often the learning rate moves

    @model_validator(mode="after")
    def _warm_up_fits(self) -> "Schedule":
        if self.warmup_epochs and self.warmup_epochs >= self.epochs and self.steps is None:
            raise ValueError(f"warmup_epochs is {self.warmup_epochs:g}; expected less than epochs, {self.epochs}")
        if self.steps and (self.warmup_steps or 0) >= self.steps:
            raise ValueError(f"warmup_steps is {self.warmup_steps}; expected less than steps, {self.steps}")
        if self.per == "epoch" and (self.steps or self.warmup_steps):
            raise ValueError("per is epoch, which counts no steps; drop steps and warmup_steps, or per")
        return self


class Training(Section):
    batch_size: Count = 64  # of one optimizer step, over all processes
    accumulate: Count = 1  # parts that a process's share of the batch is computed in
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    smoothing: Share = 0.0
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None  # decay; the averaged weights become the run's model
    workers: Whole | None = None  # that load images; None: as many as there are cores to spare, up to 8
    log_every: Count = 20  # steps
    checkpoint_minutes: NotNegative = 10  # and after every epoch


class Recipe(Section):
    """What all recipes have; `task` says which kind it is."""

    # What a checkpoint only makes sense with; all else may change when a run is resumed.
    fixed: ClassVar[tuple[str, ...]] = (
        "task", "model", "init_from", "robustify", "data", "seed", "training.batch_size", "training.ema",
        "optimizer.name",
    )  # fmt: skip

    task: str
    name: str
    seed: Whole = 0
    model: Model | None = None
    init_from: str | None = None  # timm:NAME@weights, hf:FOLDER, or a finished run
    robustify: Robustify | None = None
    data: Data
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training()

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, name: str) -> str:
        if not name.isprintable() or name.strip() != name or name[:1] in ("", ".") or set(name) & set('/\\:*?"<>|'):
            raise ValueError("expected a name that can be a folder's")
        return name

    @model_validator(mode="after")
    def _has_one_model(self) -> "Recipe":
        if (self.model is None) == (self.init_from is None):
            raise ValueError("expected either model (from scratch) or init_from (pretrained)")
        return self

    @model_validator(mode="after")
    def _rates_fall(self) -> "Recipe":
        for key, rate in (("min_lr", self.schedule.min_lr), ("warmup_lr", self.schedule.warmup_lr)):
            if rate > self.learning_rate:
                raise ValueError(
                    f"schedule.{key} is {rate:g}, above the learning rate of {self.learning_rate:g}: lower it as well"
                )
        return self

    def anchored(self) -> "Recipe":
        """With whole paths, so that a run can be resumed from any folder."""
        data = self.data.model_copy(update={key: whole(getattr(self.data, key)) for key in self.data.paths})
        start = ModelRef.of(self.init_from).anchored() if self.init_from else None
        return self.model_copy(update={"data": data, "init_from": start})

    @property
    def learning_rate(self) -> float:
        """The rate at its highest, for the batch size there is."""
        given = self.optimizer
        return given.lr * (self.training.batch_size / given.lr_batch if given.lr_batch else 1)
