"""Every key a recipe may have, its range and its default."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from torch.nn import Module

from ..adapt import robustify
from ..plumbing.sections import Count, NotNegative, Positive, Section, Share, Whole
from ..pursuit import Pursuit


class Model(Section):
    """A model from scratch: of images a name that timm knows, ours among them; of texts one of ours; and options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class Robustify(Section):
    """RPC-Attention put into the model, as by `pa.robustify`."""

    preset: str = "cleaned"
    iterations: Count = 4
    lam: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 0.5
    layers: Literal["first", "all"] | list[int] = "first"
    form: Literal["auto", "query", "symmetric"] = "auto"

    def put_into(self, network: Module) -> None:
        robustify(network, pursuit=Pursuit(self.iterations, self.lam, self.preset), layers=self.layers, form=self.form)


class Data(Section):
    source: Annotated[str, Field(min_length=1)]  # a name on the hub, a parquet file or a folder of them
    subset: str | None = None  # the hub's configuration name
    train: str = "train"
    validation: str | None = None  # the first of validation, val, test that is there
    holdout: Whole = 0  # take this many of the training examples for validation instead
    limit: Count | None = None  # use only so many examples of each split

    @property
    def splits(self) -> dict[str, Any]:
        """What `open_splits` is asked for."""
        keys = {"subset", "train", "validation", "test", "holdout", "limit", "text", "image", "label", "streaming"}
        return self.model_dump(include=keys)


class Images(Data):
    """A source may also be `digits`, or a folder of class folders."""

    image: str | None = None  # columns; found by type when not named
    label: str | None = None
    streaming: bool = False
    length: Count | None = None  # training images in a stream that does not say
    shuffle_buffer: Count = 10_000  # images a stream is shuffled among
    image_size: Count | None = None  # the model's, when not given
    mean: list[float] | None = None  # the model's
    std: list[Positive] | None = None


WORDS = "words"


class Lines(Data):
    """Texts for a language model, a line a row; all of a split are joined."""

    text: str | None = None  # the column
    tokenizer: str = WORDS  # every word of the training texts, or the path of a tokenizer.json; a run keeps its own
    vocabulary: Count | None = None  # keep only so many words
    min_count: Count = 1  # keep only words that come so often; not asked where there is a vocabulary already


class Labelled(Data):
    """Texts with classes. The tokenizer is the pretrained model's."""

    text: str | None = None
    label: str | None = None
    test: str | None = None  # measured once at the end; `test`, where it is there and not used for validation
    length: Count | None = None  # tokens of a text that are read; as many as the model can
    by_length: bool = True  # train on texts of like length together, so that little is padded
    split: bool = False  # set punctuation apart, for texts that do not (our own models' words are between spaces)


class Augment(Section):
    """What is done to training images; the defaults are nothing."""

    crop: Literal["none", "pad", "resized"] = "none"
    padding: Whole = 4  # of crop "pad"
    flip: Share = 0.0
    rand_augment: str | None = None  # timm's notation, rand-m9-mstd0.5-inc1
    color_jitter: NotNegative = 0.0  # not used beside rand_augment, as in timm
    interpolation: Literal["bilinear", "bicubic", "random"] = "bicubic"
    erasing: Share = 0.0
    mixup: NotNegative = 0.0
    cutmix: NotNegative = 0.0
    repeats: Count = 1  # repeated augmentation: each image so many times in a batch


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
    """What all recipes have; `task` says which of the kinds below it is."""

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

    @property
    def learning_rate(self) -> float:
        """The rate at its highest, for the batch size there is."""
        given = self.optimizer
        return given.lr * (self.training.batch_size / given.lr_batch if given.lr_batch else 1)


class ImageRecipe(Recipe):
    """Classes of images."""

    task: Literal["images"] = "images"
    data: Images
    augment: Augment = Augment()
    track: Literal["kernel_pca"] | None = None  # log, each epoch, how far the heads are from kernel PCA


class LanguageRecipe(Recipe):
    """The next token of a text."""

    task: Literal["language"] = "language"
    data: Lines

    @model_validator(mode="after")
    def _has_one_vocabulary(self) -> "LanguageRecipe":
        given = self.data
        if self.init_from is not None and (given.tokenizer != WORDS or given.vocabulary):
            raise ValueError("a pretrained model keeps its vocabulary: drop data.tokenizer and data.vocabulary")
        if given.tokenizer != WORDS and given.vocabulary:
            raise ValueError("data.vocabulary counts words, and data.tokenizer names a file: drop one")
        return self


class TextRecipe(Recipe):
    """Classes of texts, from a pretrained model."""

    task: Literal["texts"] = "texts"
    data: Labelled
    mark: bool = False  # our own models: classify a learned vector after the last word instead of the last word

    @model_validator(mode="after")
    def _is_pretrained(self) -> "TextRecipe":
        if self.init_from is None:
            raise ValueError("init_from is missing: expected the run of a language model, or hf:FOLDER")
        return self


TASKS: dict[str, type[Recipe]] = {"images": ImageRecipe, "language": LanguageRecipe, "texts": TextRecipe}
