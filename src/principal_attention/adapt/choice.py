"""`Choice`, the checked arguments of `robustify`: a pursuit for each chosen layer, and the form; also as JSON."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from ..errors import DtypeError, InputError
from ..pursuit import Pursuit

Form = Literal["query", "symmetric"]
Layers = Literal["first", "all"] | Sequence[int]


@dataclass(frozen=True)
class Choice:
    """Pursuits of the chosen layers, and the form of RPC-Attention."""

    pursuits: dict[int, Pursuit]  # by layer, numbered from 0 in the order of the model's attention modules
    form: Form

    @classmethod
    def of(cls, pursuit: Pursuit | Mapping[int, Pursuit], layers: Layers, form: str, count: int) -> "Choice":
        """Choice from the arguments of `robustify`, checked for a model of `count` attention modules."""
        if not isinstance(pursuit, Mapping):
            return cls._checked(dict.fromkeys(_indices(layers, count), pursuit), form, count)
        if layers != "first":  # the default
            raise InputError(f"layers is {layers!r}, but pursuit is a dict, whose keys are the layers; pass only one")
        return cls._checked(pursuit, form, count)

    @classmethod
    def given(cls, pursuit: Any, layers: Layers, form: str, count: int) -> "Choice":
        """As `of`, but a pursuit may also be a dict of its fields, and a layer index may be a string, as in JSON."""
        if isinstance(pursuit, Mapping):
            by_layer = all(isinstance(each, Pursuit | Mapping) for each in pursuit.values())
            pursuit = {_index(i): _pursuit(x) for i, x in pursuit.items()} if by_layer else _pursuit(pursuit)
        return cls.of(pursuit, layers, form, count)

    @classmethod
    def _checked(cls, pursuits: Mapping[Any, Any], form: Any, count: int) -> "Choice":
        for index, each in pursuits.items():
            if not isinstance(each, Pursuit):
                raise DtypeError(f"pursuit is {each!r}; expected a Pursuit, such as Pursuit(4, 4.0, 'paper')")
            if isinstance(index, bool) or not hasattr(index, "__index__") or not 0 <= index < count:
                raise InputError(f"layer {index!r} was chosen; the model's attention layers are 0 to {count - 1}")
        if not pursuits:
            raise InputError("no layer was chosen; name at least one, as in layers=[0] or layers='all'")
        if form not in ("auto", "query", "symmetric"):
            raise InputError(f"form is {form!r}; expected 'auto', 'query' or 'symmetric'")
        by_layer = sorted(((operator.index(i), each) for i, each in pursuits.items()), key=operator.itemgetter(0))
        return cls(dict(by_layer), "symmetric" if form == "symmetric" else "query")

    def to_json(self) -> dict[str, Any]:
        return {"form": self.form, "layers": {str(i): _plain(p) for i, p in self.pursuits.items()}}

    @classmethod
    def from_json(cls, data: Any, count: int) -> "Choice":
        """Choice from the output of `to_json`, with all values checked, since a downloaded file may hold anything."""
        try:
            layers = {int(i): _pursuit(given) for i, given in data["layers"].items()}
            form = data["form"]
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            if isinstance(wrong, InputError):
                raise
            raise InputError(
                f"the recorded choice of RPC-Attention is {data!r}; expected "
                '{"form": "query", "layers": {"0": {"iterations": 4, "lam": 4.0, "preset": "paper"}}}'
            ) from wrong
        return cls._checked(layers, form, count)


def _indices(layers: Layers, count: int) -> Sequence[int]:
    if layers in ("first", "all"):
        return range(count if layers == "all" else 1)
    if isinstance(layers, Sequence) and not isinstance(layers, str):
        return layers
    raise InputError(f"layers is {layers!r}; expected 'first', 'all' or a list of indices such as [0, 3]")


def _plain(pursuit: Pursuit) -> dict[str, Any]:
    """Fields of a pursuit for JSON, which has no infinity: it is written as "inf"."""
    return {name: "inf" if x == math.inf else x for name, x in pursuit.given().items()}


def _index(given: Any) -> Any:
    return int(given) if isinstance(given, str) and given.isdecimal() else given


def _pursuit(given: Any) -> Pursuit:
    if isinstance(given, Pursuit):
        return given
    known = {f.name for f in fields(Pursuit)}
    if unknown := sorted(set(given) - known):
        raise InputError(f"a pursuit has no field {unknown[0]!r}; expected one of {', '.join(sorted(known))}")
    values: dict[str, Any] = {name: math.inf if x == "inf" else x for name, x in given.items()}
    return Pursuit(**values)
