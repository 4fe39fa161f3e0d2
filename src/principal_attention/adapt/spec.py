"""`Robustify`, the settings of RPC-Attention to put into a model, from a recipe or from `--robustify`."""

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from ..errors import InputError
from ..plumbing.sections import Count, Positive, Section, check

if TYPE_CHECKING:  # keys and values are checked without torch
    from torch import nn

    from ..pursuit import Pursuit

_COMMAS = re.compile(r",(?![^\[]*\])")  # commas outside of lists

HELP = (
    "RPC-Attention to put into the model, as preset=cleaned,lam=1. Keys: preset, iterations, lam, layers, form, "
    "and the fields of Pursuit."
)


class Robustify(Section):
    """Arguments of `pa.robustify`: the layers, the form, and every field of `pa.Pursuit`."""

    preset: str = Field("cleaned", description="Reading of the algorithm: paper, authors, admm or cleaned.")
    iterations: Count = Field(4, description="Iterations n of the pursuit.")
    lam: float = Field(1.0, ge=0, allow_inf_nan=True, description="λ: a larger λ takes less off the keys.")
    layers: Literal["first", "all"] | list[int] = Field("first", description="first, all, or a list of indices from 0.")
    form: Literal["auto", "query", "symmetric"] = Field(
        "auto",
        description="query keeps the model's queries, symmetric replaces them by the keys; auto: as the layer is.",
    )
    dual_sign: Literal[-1, 1] | None = Field(None, description="Sign σ of the dual update; null: the preset's.")
    threshold: Literal["lam/mu", "lam*mu"] | None = Field(None, description="Soft threshold; null: the preset's.")
    mu_dim: Literal["head", "model"] | None = Field(
        None, description="Width in the formula of μ: of a head or of the model; null: the preset's."
    )
    mu: Positive | None = Field(None, description="Penalty μ as a number; null: computed from the keys.")
    mu_grad: bool = Field(True, description="Whether gradients flow through μ.")
    values: Literal["learned", "key"] | None = Field(
        None, description="Values of the passes before the last: learned, or the keys; null: the preset's."
    )
    output: Literal["low_rank", "cleaned_keys"] | None = Field(
        None, description="Output: the last low-rank part, or attention over cleaned keys; null: the preset's."
    )

    @field_validator("preset")
    @classmethod
    def _is_known(cls, preset: str) -> str:
        from ..pursuit import Pursuit

        Pursuit(preset=preset)  # the error names the presets
        return preset

    @classmethod
    def parse(cls, text: str) -> "Robustify":
        """Parse text such as `preset=cleaned,iterations=4,lam=1,layers=all`; values are YAML, as in a recipe."""
        import yaml

        content: dict[str, Any] = {}
        for word in _COMMAS.split(text):
            key, sign, value = word.partition("=")
            if not sign or not key.strip():
                raise InputError(
                    f"--robustify is {text!r}; expected key=value, as in preset=cleaned,iterations=4,lam=1,layers=all"
                )
            try:
                content[key.strip()] = yaml.safe_load(value)
            except yaml.YAMLError as wrong:
                raise InputError(f"--robustify: the value of {key} is {value!r}, which is not YAML") from wrong
        return check(cls, content, "--robustify")

    @property
    def pursuit(self) -> "Pursuit":
        from ..pursuit import Pursuit

        return Pursuit(**self.model_dump(exclude={"layers", "form"}))

    def put_into(self, network: "nn.Module") -> None:
        """Apply `pa.robustify` to the network, in place."""
        from .models import robustify

        robustify(network, pursuit=self.pursuit, layers=self.layers, form=self.form)
