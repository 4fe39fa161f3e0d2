"""Kinds by name, imported on first use."""

from collections.abc import Iterator
from importlib import import_module

from ..adapt.named import EXPECTED, ModelRef
from ..errors import InputError
from .kind import Kind

_ROOMS = {
    "images": "principal_attention.tasks.image_classes",
    "language": "principal_attention.tasks.language_model",
    "texts": "principal_attention.tasks.text_classes",
}
DEFAULT = "images"  # kind of a recipe without `task`


def register(name: str, module: str) -> None:
    """Register a kind: its name (`task` in recipes) and the module that exports it as `KIND`."""
    _ROOMS[name] = module


def kind_named(name: object) -> Kind:
    if not isinstance(name, str) or name not in _ROOMS:
        raise InputError(f"task is {name!r}; expected one of {', '.join(_ROOMS)}")
    kind: Kind = import_module(_ROOMS[name]).KIND
    return kind


def all_kinds() -> Iterator[Kind]:
    return map(kind_named, list(_ROOMS))


def kind_of(model: ModelRef) -> Kind:
    """The kind of a model."""
    for kind in all_kinds():
        if kind.recognises(model):
            return kind
    raise InputError(f"the model is {model.given}; {EXPECTED}")
