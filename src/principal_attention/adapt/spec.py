"""RPC-Attention to put into a model, as a recipe's section and as words on a command line."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator
from torch import nn

from ..errors import InputError
from ..modules import RPC, SelfAttention
from ..plumbing.sections import Count, Positive, Section, check
from ..pursuit import Pursuit
from .models import attention_modules, robustify
from .robust import Robust

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
        Pursuit(preset=preset)  # says which there are
        return preset

    @classmethod
    def parse(cls, text: str) -> "Robustify":
        """From `preset=cleaned,iterations=4,lam=0.5,layers=all`; values are written as in a recipe."""
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
    def pursuit(self) -> Pursuit:
        return Pursuit(**self.model_dump(exclude={"layers", "form"}))

    def put_into(self, network: nn.Module) -> None:
        robustify(network, pursuit=self.pursuit, layers=self.layers, form=self.form)


def describe(network: nn.Module) -> str | None:
    """The RPC-Attention that a network holds, its own or put there, in the words of `--robustify`; None: none."""
    modules = attention_modules(network)
    held = {layer: found for layer, module in enumerate(modules) if (found := _held(module)) is not None}
    if not held:
        return None
    groups: dict[tuple[str, str], list[int]] = {}
    for layer, (pursuit, form) in held.items():
        groups.setdefault((_words(pursuit.given()), form), []).append(layer)
    return "; ".join(
        f"{pursuit},layers={_layers(layers, len(modules))},form={form}" for (pursuit, form), layers in groups.items()
    )


def _held(module: nn.Module) -> tuple[Pursuit, str] | None:
    if isinstance(module, Robust):
        return module.rpc_pursuit, module.rpc_form
    if isinstance(module, SelfAttention) and isinstance(module.mechanism, RPC):
        return module.mechanism.pursuit, module.mechanism.form
    return None


def _words(fields: Mapping[str, Any]) -> str:
    first = {key: fields[key] for key in ("preset", "iterations", "lam")}
    return ",".join(f"{key}={_plain(x)}" for key, x in (first | dict(fields)).items())


def _plain(x: Any) -> str:
    return f"{x:g}" if isinstance(x, float) else str(x).lower() if isinstance(x, bool) else str(x)


def _layers(layers: list[int], count: int) -> str:
    if layers == list(range(count)):
        return "all"
    return "first" if layers == [0] else f"[{','.join(map(str, layers))}]"
