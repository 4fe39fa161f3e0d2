"""Recipe keys of image classification: the images and their augmentation."""

from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, field_validator, model_validator

from ...adapt.named import ModelRef
from ...plumbing.sections import Count, NotNegative, Positive, Section, Share, Whole
from ...recipes.schema import Data, Recipe
from .hardening_keys import Adversarial, CorruptedImages, LearntFeatures, TokenRemoval

OWN = "self"  # value of `teacher` for the model of init_from


class ImageData(Data):
    """Labelled images."""

    source: str = Field(
        min_length=1,
        description="Dataset on the Hugging Face hub, parquet file or folder, folder of class folders, or digits.",
    )
    image: str | None = Field(None, description="Column of the images; null: found by its type.")
    label: str | None = Field(None, description="Column of the labels; null: found by its type.")
    streaming: bool = Field(False, description="Read a dataset of the hub while training instead of downloading it.")
    length: Count | None = Field(None, description="Number of training images, for a stream that does not say.")
    shuffle_buffer: Count = Field(10_000, description="Images among which a stream is shuffled.")
    image_size: Count | None = Field(None, description="Side of the model's input in pixels; null: the model's own.")
    mean: list[float] | None = Field(None, description="Mean of each channel for normalisation; null: the model's own.")
    std: list[Positive] | None = Field(None, description="Standard deviation of each channel; null: the model's own.")

    @property
    def splits(self) -> dict[str, Any]:
        return super().splits | self.model_dump(include={"image", "label", "streaming"})


class Augment(Section):
    """Augmentation of the training images; by default none."""

    crop: Literal["none", "pad", "resized"] = Field(
        "none", description="Random crop: of the image padded by `padding`, or of a random size, resized."
    )
    scale: tuple[Share, Share] = Field((0.08, 1.0), description="Range of the area of crop: resized; 1 is the image.")
    padding: Whole = Field(4, description="Padding in pixels of crop: pad.")
    flip: Share = Field(0.0, description="Probability of a horizontal flip.")
    rand_augment: str | None = Field(None, description="RandAugment in timm's notation, as rand-m9-mstd0.5-inc1.")
    color_jitter: NotNegative = Field(
        0.0, description="Strength of colour jitter; unused with rand_augment, as in timm."
    )
    interpolation: Literal["bilinear", "bicubic", "random"] = Field("bicubic", description="Interpolation of resizing.")
    erasing: Share = Field(0.0, description="Probability of erasing a random rectangle.")
    mixup: NotNegative = Field(
        0.0, description="Parameter alpha of mixup; 0: none. A teacher answers the mixed images."
    )
    cutmix: NotNegative = Field(0.0, description="Parameter alpha of CutMix; 0: none.")
    repeats: Count = Field(1, description="Times that each image appears in a batch (repeated augmentation).")

    @field_validator("scale")
    @classmethod
    def _rises(cls, scale: tuple[float, float]) -> tuple[float, float]:
        if not 0 < scale[0] <= scale[1]:
            raise ValueError(f"is {list(scale)}; expected the smallest and the largest area, as [0.25, 1]")
        return scale


class ImageRecipe(Recipe):
    """Image classification."""

    fixed: ClassVar = (
        *Recipe.fixed, "augment.repeats", "teacher", "features", "trained_share", "interpolation", "adversarial",
        "corruptions", "token_removal",
    )  # fmt: skip

    task: Literal["images"] = Field("images", description="Kind of task: image classification.")
    data: ImageData = Field(description="Images to train and validate on.")
    augment: Augment = Field(Augment(), description="Augmentation of the training images.")
    teacher: str | None = Field(
        None,
        description="Model whose answers on the clean images replace the labels; self: the model of init_from. null: "
        "labels, or self where adversarial.loss is distill.",
    )
    features: LearntFeatures | None = Field(
        None, description="Features inside the teacher to learn as well; null: answers only."
    )
    trained_share: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Share of the network's blocks that is trained, from the input; the others stay as they are."
    )
    interpolation: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="Share of the way from the weights of init_from to the trained ones at which the saved weights lie "
        "(Wortsman et al., CVPR 2022). Below 1 the model changes less.",
    )
    adversarial: Adversarial | None = Field(None, description="Adversarial training; null: none.")
    corruptions: CorruptedImages | None = Field(None, description="Corruption of the training images; null: none.")
    token_removal: TokenRemoval | None = Field(None, description="Removal of blocks of tokens; null: none.")
    track: Literal["kernel_pca"] | None = Field(
        None, description="kernel_pca: after each epoch, measure how far the heads are from kernel PCA."
    )

    @model_validator(mode="after")
    def _has_answers(self) -> "ImageRecipe":
        loss = self.adversarial.loss if self.adversarial else None
        if self.teacher and loss in ("pgd", "trades"):
            raise ValueError(f"adversarial.loss is {loss}, which uses labels, and teacher is {self.teacher}; drop one")
        if self.features is not None and not self.learns_from:
            raise ValueError("features are the teacher's, and teacher is null; drop features or name a teacher")
        if self.features is not None and self.token_removal:
            raise ValueError("features are of all tokens, and token_removal removes some; drop one")
        if self.interpolation < 1 and self.init_from is None:
            raise ValueError(f"interpolation is {self.interpolation:g}, which is from the weights of init_from; set it")
        if self.learns_from == OWN and self.init_from is None:
            raise ValueError("the teacher is the model of init_from, which is missing")
        return self

    @property
    def learns_from(self) -> str | None:
        """The teacher; None for labels."""
        distilled = self.adversarial is not None and self.adversarial.loss == "distill"
        return self.teacher or (OWN if distilled else None)

    @property
    def teacher_model(self) -> str | None:
        """Name of the teacher's model; None for labels."""
        return self.init_from if self.learns_from == OWN else self.learns_from

    def anchored(self) -> "ImageRecipe":
        made = cast(ImageRecipe, super().anchored())
        if made.teacher in (None, OWN):
            return made
        return made.model_copy(update={"teacher": ModelRef.of(made.teacher).anchored()})
