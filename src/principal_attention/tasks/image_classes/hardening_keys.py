"""Recipe keys of robust training: adversarial examples, corrupted images, teacher features, and removed blocks."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from ...plumbing.sections import Count, Fractional, NotNegative, Section, Share


class Adversarial(Section):
    """Training images perturbed within an ℓ∞ budget so that the loss increases; pixels are in [0, 1]."""

    eps: Annotated[Fractional, Field(gt=0, le=1)] = Field(1 / 255, description="Budget ε, as 1/255.")
    steps: Count = Field(1, description="Gradient ascent steps, from a random start within the budget.")
    step: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Step size divided by eps; null: 1.25 for one step, else 2.5/steps."
    )
    loss: Literal["distill", "pgd", "trades"] = Field(
        "distill",
        description="distill: divergence of the perturbed images' answers from the teacher's clean ones; pgd: "
        "cross-entropy of the perturbed images; trades: cross-entropy of clean images plus `beta` times the divergence "
        "between clean and perturbed answers.",
    )
    clean: NotNegative = Field(0.0, description="Weight of the same loss on the clean images; for distill and pgd.")
    beta: NotNegative = Field(6.0, description="Weight of the divergence in trades.")

    @property
    def step_size(self) -> float:
        return self.eps * (self.step or (1.25 if self.steps == 1 else 2.5 / self.steps))


class CorruptedImages(Section):
    """Training images that are corrupted as in ImageNet-C, before any adversarial perturbation."""

    kinds: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Kinds, from `principal list corruptions`; null: all."
    )
    severities: list[Annotated[int, Field(ge=1, le=5)]] = Field(
        [1, 2, 3, 4, 5], min_length=1, description="Severities; each image gets a random kind and severity."
    )
    share: Share = Field(0.5, description="Share of the images that is corrupted.")

    @field_validator("kinds")
    @classmethod
    def _are_known(cls, kinds: list[str] | None) -> list[str] | None:
        from ...vision.corruptions import CORRUPTIONS  # imports torch

        for kind in kinds or ():
            if kind not in CORRUPTIONS:
                raise ValueError(f"is {kind!r}; expected some of {', '.join(CORRUPTIONS)}")
        return kinds


class LearntFeatures(Section):
    """Features inside the teacher that the model learns as well, so that it changes less on images it has not seen:
    the tokens after a block, and the input of the last layer."""

    weight: NotNegative = Field(
        1.0, description="Weight of the squared distance from the teacher's features, divided by their squared norm."
    )
    block: Count | None = Field(None, description="Block whose tokens are compared, from 1; null: the last but one.")


class TokenRemoval(Section):
    """Random blocks of tokens removed from each training image, as the certificate against patches removes them."""

    patch: Count = Field(32, description="Side in pixels of the patch to certify against, which sets the block's size.")
    blocks: Count = Field(2, description="Blocks removed from each image.")
