"""Keys and values from a person or a file, checked: an unknown key or a value out of range is one sentence."""

from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import InputError, hint

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


Kind = TypeVar("Kind", bound=Section)


def check(kind: type[Kind], content: Any, what: str) -> Kind:
    try:
        return kind.model_validate(content)
    except ValidationError as wrong:
        raise InputError(f"{what}: {'; '.join(_sentence(error, kind) for error in wrong.errors()[:3])}") from wrong


def _sentence(error: Any, kind: type[Section]) -> str:
    place = [part for part in error["loc"] if isinstance(part, str)]
    where = ".".join(place)
    if error["type"] == "invalid_key":
        return f"{error['loc'][0]!r} is not a key; expected {', '.join(kind.model_fields)}"
    if error["type"] == "extra_forbidden":
        known = list(_section(kind, place[:-1]).model_fields)
        return f"unknown key {where}; " + hint(place[-1], known, "expected " + ", ".join(known), 0.6)
    if error["type"] == "missing":
        return f"{where} is missing"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if error["type"] == "value_error":
        return f"{where}: {message}" if where else message
    return f"{where or 'its content'} is {error['input']!r}; expected {message}"


def _section(kind: type[BaseModel], place: list[str]) -> type[BaseModel]:
    """The class of the section at this place, looking through `Section | None`."""
    section: Any = kind
    for key in place:
        annotation = section.model_fields[key].annotation
        section = next((c for c in (annotation, *get_args(annotation)) if _is_section(c)), section)
    return section  # type: ignore[no-any-return]


def _is_section(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)
