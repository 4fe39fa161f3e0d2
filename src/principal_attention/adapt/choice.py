"""`Choice`, the checked arguments of `robustify`: a setting for each chosen layer, and the form; also as JSON."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from ..errors import DtypeError, InputError
from ..pursuit import Pursuit, Temperature, TokenPursuit, TokenReweighting
from ..pursuit.controls import KINDS

Setting = Pursuit | TokenPursuit | TokenReweighting | Temperature  # what a layer can hold instead of plain attention
Form = Literal["query", "symmetric"]
MOST = 2**15  # largest width of keys in a record; a matrix of this size takes 4 GB
Layers = Literal["first", "all"] | Sequence[int]


@dataclass(frozen=True)
class Choice:
    """Settings of the chosen layers, all of one class, and the form of RPC-Attention."""

    pursuits: Mapping[int, Setting]  # by layer, numbered from 0 in the order of the model's attention modules
    form: Form
    widths: Mapping[int, int] = field(default_factory=dict)  # of the keys, for layers with statistics of clean keys

    @property
    def watches_tokens(self) -> bool:
        return any(isinstance(each, TokenPursuit) for each in self.pursuits.values())

    def rpc_pursuits(self) -> dict[int, Pursuit]:
        """The settings, which must all be a `Pursuit`."""
        found = {index: each for index, each in self.pursuits.items() if isinstance(each, Pursuit)}
        if len(found) < len(self.pursuits):
            other = next(each for each in self.pursuits.values() if not isinstance(each, Pursuit))
            raise DtypeError(f"pursuit is {other!r}; expected a Pursuit, such as Pursuit(4, 4.0, 'paper')")
        return found

    def with_prefix(self, prefix: int) -> "Choice":
        """The choice with the model's number of prefix tokens, where a `TokenPursuit` has none of its own."""
        unset = {
            index: replace(each, prefix=prefix)
            for index, each in self.pursuits.items()
            if isinstance(each, TokenPursuit) and each.prefix is None
        }
        return replace(self, pursuits={**self.pursuits, **unset})

    @classmethod
    def of(cls, pursuit: Setting | Mapping[int, Setting], layers: Layers, form: str, count: int) -> "Choice":
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
            by_layer = all(isinstance(each, Setting | Mapping) for each in pursuit.values())
            pursuit = {_index(i): setting(x) for i, x in pursuit.items()} if by_layer else setting(pursuit)
        return cls.of(pursuit, layers, form, count)

    @classmethod
    def _checked(cls, pursuits: Mapping[Any, Any], form: Any, count: int) -> "Choice":
        for index, each in pursuits.items():
            if not isinstance(each, Setting):
                raise DtypeError(
                    f"pursuit is {each!r}; expected a Pursuit, such as Pursuit(4, 4.0, 'paper'), a TokenPursuit, a "
                    "TokenReweighting or a Temperature"
                )
            if isinstance(index, bool) or not hasattr(index, "__index__") or not 0 <= index < count:
                raise InputError(f"layer {index!r} was chosen; the model's attention layers are 0 to {count - 1}")
        if not pursuits:
            raise InputError("no layer was chosen; name at least one, as in layers=[0] or layers='all'")
        if form not in ("auto", "query", "symmetric"):
            raise InputError(f"form is {form!r}; expected 'auto', 'query' or 'symmetric'")
        classes = sorted({type(each).__name__ for each in pursuits.values()})
        if len(classes) > 1:
            raise InputError(f"the layers were given a {' and a '.join(classes)}; expected one of them in all layers")
        if form == "symmetric" and classes != ["Pursuit"]:
            raise InputError(f"form is 'symmetric', which is for Pursuit; {classes[0]} keeps the model's queries")
        by_layer = sorted(((operator.index(i), each) for i, each in pursuits.items()), key=operator.itemgetter(0))
        return cls(dict(by_layer), "symmetric" if form == "symmetric" else "query")

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"form": self.form, "layers": {str(i): _plain(p) for i, p in self.pursuits.items()}}
        return made | ({"calibrated": {str(i): width for i, width in self.widths.items()}} if self.widths else {})

    @classmethod
    def from_json(cls, data: Any, count: int) -> "Choice":
        """Choice from the output of `to_json`, with all values checked, since a downloaded file may hold anything."""
        try:
            layers = {int(i): setting(given) for i, given in data["layers"].items()}
            form = data["form"]
            widths = {int(i): operator.index(width) for i, width in data.get("calibrated", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            if isinstance(wrong, InputError):
                raise
            raise InputError(
                f"the recorded choice of RPC-Attention is {data!r}; expected "
                '{"form": "query", "layers": {"0": {"iterations": 4, "lam": 4.0, "preset": "paper"}}}'
            ) from wrong
        made = cls._checked(layers, form, count)
        for index, width in widths.items():
            if not isinstance(made.pursuits.get(index), TokenPursuit) or not 1 <= width <= MOST:
                raise InputError(f"the record has statistics of {width} dimensions for layer {index}; expected a "
                                 f"layer with a TokenPursuit, and 1 to {MOST} dimensions")  # fmt: skip
        return replace(made, widths=widths)


def _indices(layers: Layers, count: int) -> Sequence[int]:
    if layers in ("first", "all"):
        return range(count if layers == "all" else 1)
    if isinstance(layers, Sequence) and not isinstance(layers, str):
        return layers
    raise InputError(f"layers is {layers!r}; expected 'first', 'all' or a list of indices such as [0, 3]")


def _plain(pursuit: Setting) -> dict[str, Any]:
    """Fields of a pursuit for JSON, which has no infinity: it is written as "inf"."""
    return {name: "inf" if x == math.inf else x for name, x in pursuit.given().items()}


def _index(given: Any) -> Any:
    return int(given) if isinstance(given, str) and given.isdecimal() else given


def setting(given: Any) -> Setting:
    """Setting from its `given()`, with infinity also as "inf", or the setting itself."""
    if isinstance(given, Setting):
        return given
    values: dict[str, Any] = {name: math.inf if x == "inf" else x for name, x in given.items()}
    preset = values.get("preset")
    kinds: dict[Any, type[Setting]] = {"tokens": TokenPursuit, "temperature": Temperature}
    made = kinds.get(preset, TokenReweighting if preset in KINDS else Pursuit)
    if made is not Pursuit:
        del values["preset"]
    known = {f.name for f in fields(made)} - {"kind"}
    if unknown := sorted(set(values) - known):
        what = "a pursuit" if made is Pursuit else f"a {made.__name__}"
        raise InputError(f"{what} has no field {unknown[0]!r}; expected one of {', '.join(sorted(known))}")
    make: Callable[..., Setting] = made
    return make(**values, kind=preset) if made is TokenReweighting else make(**values)
