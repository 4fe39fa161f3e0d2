"""The keys of every recipe with their ranges, defaults and meanings; each kind of task adds its own."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ..adapt.named import ModelRef, whole
from ..adapt.spec import Robustify
from ..plumbing.sections import Count, NotNegative, Positive, Section, Share, Whole


class Model(Section):
    """A model with fresh weights, by its name and the arguments of its constructor."""

    name: str = Field(description="Name of the model: for images any timm knows, see also `principal list models`.")
    options: dict[str, Any] = Field(default_factory=dict, description="Arguments of the model's constructor.")


class Data(Section):
    source: str = Field(min_length=1, description="Dataset on the Hugging Face hub, a parquet file, or a folder.")
    subset: str | None = Field(None, description="Configuration of a dataset on the hub.")
    train: str = Field("train", description="Split to train on.")
    validation: str | None = Field(None, description="Split to validate on; null: validation, else val, else test.")
    holdout: Whole = Field(0, description="Training examples to hold out for validation instead of using a split.")
    limit: Count | None = Field(None, description="Largest number of examples of each split; null: all.")

    @property
    def paths(self) -> tuple[str, ...]:
        """The keys that may hold paths."""
        return ("source",)

    @property
    def splits(self) -> dict[str, Any]:
        """The keys that say which examples of the source are meant."""
        return self.model_dump(include={"subset", "train", "validation", "holdout", "limit"})


class Optimizer(Section):
    name: str = Field("adamw", description="Optimizer, by its name in timm.")
    lr: float = Field(1e-3, gt=0, le=1e30, description="Learning rate at its highest.")  # 1e30: single precision ends
    lr_batch: Count | None = Field(
        None, description="Batch size that lr is meant for: the rate used is lr × batch_size / lr_batch. null: lr."
    )
    weight_decay: NotNegative = Field(0.05, description="Weight decay.")
    momentum: Share = Field(0.9, description="Momentum, for optimizers that have one.")
    betas: tuple[Share, Share] | None = Field(None, description="Adam's decay rates; null: the optimizer's own.")
    clip: Positive | None = Field(None, description="Largest norm of the gradient; null: no clipping.")


class Schedule(Section):
    epochs: Count = Field(10, description="Passes over the training data.")
    steps: Count | None = Field(None, description="Optimizer steps, used instead of epochs when given.")
    warmup_epochs: NotNegative = Field(0, description="Epochs in which the rate rises to its highest.")
    warmup_steps: Whole | None = Field(None, description="The same in steps, used instead when given.")
    warmup_lr: NotNegative = Field(1e-6, description="Learning rate at the start of the warm-up.")
    min_lr: NotNegative = Field(1e-5, description="Learning rate at the end of the cosine schedule.")
    per: Literal["step", "epoch"] = Field("step", description="How often the learning rate changes.")

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
    batch_size: Count = Field(64, description="Examples of one optimizer step, over all processes.")
    accumulate: Count = Field(1, description="Parts in which each process computes its share of a batch.")
    precision: Literal["float32", "bfloat16", "float16", "auto"] = Field(
        "float32", description="Precision of the forward pass; auto: bfloat16 where the processor has it, else float32."
    )
    smoothing: Share = Field(0.0, description="Label smoothing.")
    ema: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Decay of an exponential average of the weights, saved as the model; null: no average."
    )
    workers: Whole | None = Field(None, description="Processes that load images; null: the spare cores, at most 8.")
    log_every: Count = Field(20, description="Steps between lines of the log.")
    checkpoint_minutes: NotNegative = Field(
        10, description="Minutes between checkpoints; one is also written after every epoch."
    )


class Recipe(Section):
    """The keys of every recipe; `task` names the kind of task."""

    # Keys that must not change when a run is resumed: a checkpoint depends on them.
    fixed: ClassVar[tuple[str, ...]] = (
        "task", "model", "init_from", "robustify", "data", "seed", "training.batch_size", "training.ema",
        "optimizer.name",
    )  # fmt: skip

    task: str
    name: str = Field(description="Name of the recipe; a run is written to runs/NAME-SEED unless --out is given.")
    seed: Whole = Field(0, description="Seed of the initial weights, the order of the data and the augmentation.")
    model: Model | None = Field(None, description="Model to train from scratch; either this or init_from.")
    init_from: str | None = Field(
        None, description="Pretrained model: timm:NAME, timm:NAME@WEIGHTS, hf:FOLDER, or the folder of a finished run."
    )
    robustify: Robustify | None = Field(None, description="RPC-Attention to put into the model; null: none.")
    data: Data = Field(description="Examples to train and validate on.")
    optimizer: Optimizer = Field(Optimizer(), description="Optimizer.")
    schedule: Schedule = Field(Schedule(), description="Length of the training and learning rates.")
    training: Training = Field(Training(), description="Batches, precision and checkpoints.")

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
        robustify = self.robustify
        if robustify is not None and robustify.calibrate is not None:
            robustify = robustify.model_copy(update={"calibrate": whole(robustify.calibrate)})
        return self.model_copy(update={"data": data, "init_from": start, "robustify": robustify})

    @property
    def learning_rate(self) -> float:
        """The rate at its highest, for the batch size there is."""
        given = self.optimizer
        return given.lr * (self.training.batch_size / given.lr_batch if given.lr_batch else 1)
