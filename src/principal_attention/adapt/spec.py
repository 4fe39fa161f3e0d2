"""RPC-Attention to put into a model, as a recipe's section and as words on a command line."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from ..errors import InputError
from ..plumbing.sections import Count, Positive, Section, check

if TYPE_CHECKING:  # keys and values are checked without torch
    from torch import nn

    from ..pursuit import Pursuit

_COMMAS = re.compile(r",(?![^\[]*\])")  # those that stand in no list


class Robustify(Section):
    """What `pa.robustify` is asked to do: where, in which form, and every field of `pa.Pursuit`."""

    preset: str = "cleaned"
    iterations: Count = 4
    lam: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 0.5
    layers: Literal["first", "all"] | list[int] = "first"
    form: Literal["auto", "query", "symmetric"] = "auto"
    dual_sign: Literal[-1, 1] | None = None  # from here on: as the preset says, where not given
    threshold: Literal["lam/mu", "lam*mu"] | None = None
    mu_dim: Literal["head", "model"] | None = None
    mu: Positive | None = None
    mu_grad: bool = True
    values: Literal["learned", "key"] | None = None
    output: Literal["low_rank", "cleaned_keys"] | None = None

    @field_validator("preset")
    @classmethod
    def _is_known(cls, preset: str) -> str:
        from ..pursuit import Pursuit

        Pursuit(preset=preset)  # says which there are
        return preset

    @classmethod
    def parse(cls, text: str) -> "Robustify":
        """From `preset=cleaned,iterations=4,lam=0.5,layers=all`; values are written as in a recipe."""
        import yaml

        content: dict[str, Any] = {}
        for word in _COMMAS.split(text):
            key, sign, value = word.partition("=")
            if not sign or not key.strip():
                raise InputError(
                    f"--robustify is {text!r}; expected key=value, as in preset=cleaned,iterations=4,lam=0.5,layers=all"
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
        from .models import robustify

        robustify(network, pursuit=self.pursuit, layers=self.layers, form=self.form)
