"""A recipe of image classes: where the images come from, and what is done to them in training."""

from typing import Any, ClassVar, Literal

from ...plumbing.sections import Count, NotNegative, Positive, Section, Share, Whole
from ...recipes.schema import Data, Recipe


class ImageData(Data):
    """A source may also be `digits`, or a folder of class folders."""

    image: str | None = None  # columns; found by type when not named
    label: str | None = None
    streaming: bool = False
    length: Count | None = None  # training images in a stream that does not say
    shuffle_buffer: Count = 10_000  # images a stream is shuffled among
    image_size: Count | None = None  # the model's, when not given
    mean: list[float] | None = None  # the model's
    std: list[Positive] | None = None

    @property
    def splits(self) -> dict[str, Any]:
        return super().splits | self.model_dump(include={"image", "label", "streaming"})


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


class ImageRecipe(Recipe):
    """Classes of images."""

    fixed: ClassVar = (*Recipe.fixed, "augment.repeats")

    task: Literal["images"] = "images"
    data: ImageData
    augment: Augment = Augment()
    track: Literal["kernel_pca"] | None = None  # log, each epoch, how far the heads are from kernel PCA
