"""`Robustify`, the settings of RPC-Attention or token pursuit to put into a model, from a recipe or `--robustify`."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from ..errors import InputError
from ..plumbing.sections import Count, NotNegative, Positive, Section, Whole, check

if TYPE_CHECKING:  # keys and values are checked without torch
    from torch import Tensor, nn

    from .choice import Setting

_COMMAS = re.compile(r",(?![^\[]*\])")  # commas outside of lists

HELP = (
    "RPC-Attention to put into the model, as preset=cleaned,lam=1, or another defence: preset=tokens (token pursuit), "
    "mcp, huber, l1 or temperature. Keys: layers; iterations, lam, form and the fields of Pursuit; for tokens "
    "quantile, strength and calibrate (a data set); for mcp, huber and l1 iterations and gamma; for temperature value."
)
REWEIGHTINGS = ("mcp", "huber", "l1")
ITERATIONS = 3  # default of the reweightings
IMAGES = 300  # default number of calibration images: 59,000 tokens of DeiT-tiny for a covariance of 192 dimensions
_OWN = {  # keys of presets that are not a Pursuit, in addition to preset and layers
    "tokens": ("quantile", "strength", "prefix", "calibrate", "calibrate_split", "calibrate_images"),
    "mcp": ("iterations", "gamma"),
    "huber": ("iterations", "gamma"),
    "l1": ("iterations",),
    "temperature": ("value",),
}
# Function from a source, a split or None, and a number of images to batches of model inputs
Calibration = Callable[[str, str | None, int], "Iterable[Tensor]"]


class Robustify(Section):
    """Arguments of `pa.robustify`: the layers, the form, and the fields of all settings; `preset` decides which fit."""

    preset: str = Field(
        "cleaned",
        description="Reading of the algorithm: paper, authors, admm or cleaned; tokens: token pursuit; mcp, huber, l1: "
        "reweighting of tokens; temperature: of attention.",
    )
    iterations: Count = Field(4, description=f"Iterations n of the pursuit; {ITERATIONS} in mcp, huber and l1.")
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

    quantile: float | None = Field(
        None, ge=0.5, lt=1, description="For tokens: quantile of clean distances beyond which a token is condemned; "
        "null: 0.999.",
    )  # fmt: skip
    strength: NotNegative | None = Field(
        None, description="For tokens: κ, lost from the logits of a token at twice the threshold; null: 20."
    )
    prefix: Whole | None = Field(
        None, description="For tokens: tokens at the beginning that are left alone; null: the model's."
    )
    calibrate: str | None = Field(
        None, description="For tokens: clean images without labels, as for --data, but never those that are evaluated; "
        "null: each image's own tokens, which is weaker.",
    )  # fmt: skip
    calibrate_split: str | None = Field(None, description="Split of calibrate; null: train, else as for --split.")
    calibrate_images: Count | None = Field(None, description="Number of images of calibrate; null: 300.")
    gamma: Positive | None = Field(None, description="For mcp and huber: distance γ in units of the values; null: 4.")
    value: Positive | None = Field(None, description="For temperature: t in softmax(q kᵀ/(√D·t)); null: 1.")

    @model_validator(mode="before")
    @classmethod
    def _iterations(cls, content: Any) -> Any:
        if isinstance(content, dict) and content.get("preset") in REWEIGHTINGS:
            return {"iterations": ITERATIONS} | content
        return content

    @field_validator("preset")
    @classmethod
    def _is_known(cls, preset: str) -> str:
        from ..pursuit import PRESETS

        if preset not in (*PRESETS, *_OWN):
            raise ValueError(f"is {preset!r}; expected one of {', '.join((*PRESETS, *_OWN))}")
        return preset

    @model_validator(mode="after")
    def _fits(self) -> "Robustify":
        """A recipe that was written in full names all keys, so the others may have their default values."""
        fields = type(self).model_fields
        changed = {key for key in self.model_fields_set if getattr(self, key) != fields[key].get_default()}
        _check_keys(changed, self.preset)
        if self.calibrate is None and (self.calibrate_split is not None or self.calibrate_images is not None):
            raise ValueError("calibrate_split and calibrate_images need calibrate=DATA")
        return self

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
        made = check(cls, content, "--robustify")
        try:
            _check_keys(content, made.preset)
        except ValueError as wrong:
            raise InputError(f"--robustify: {wrong}") from wrong
        return made

    @property
    def pursuit(self) -> "Setting":
        from ..pursuit import Pursuit
        from .choice import setting

        if self.preset not in _OWN:
            return Pursuit(**{key: getattr(self, key) for key in Pursuit.__dataclass_fields__})
        own = {key: getattr(self, key) for key in _OWN[self.preset] if not key.startswith("calibrate")}
        return setting({"preset": self.preset} | {key: x for key, x in own.items() if x is not None})

    def put_into(self, network: "nn.Module", calibration: Calibration | None = None) -> None:
        """Apply `pa.robustify` to the network, in place. `calibration` opens the images that `calibrate` names."""
        from .models import robustify

        data = None
        if self.calibrate is not None:
            if calibration is None:
                raise InputError(f"calibrate is {self.calibrate}, but this model takes no images; leave calibrate out")
            data = calibration(self.calibrate, self.calibrate_split, self.calibrate_images or IMAGES)
        robustify(network, pursuit=self.pursuit, layers=self.layers, form=self.form, calibrate=data)


def _check_keys(keys: Iterable[str], preset: str) -> None:
    """Raise for keys of another preset."""
    others = {key for own in _OWN.values() for key in own} - {"iterations"}
    allowed = {"preset", "layers", *_OWN.get(preset, set(Robustify.model_fields) - others)}
    if wrong := sorted(set(keys) - allowed):
        raise ValueError(f"{wrong[0]} does not fit preset={preset}; expected {', '.join(sorted(allowed))}")
