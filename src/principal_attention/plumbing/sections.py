"""Validate options and keys of files; an unknown key or invalid value raises an `InputError` of one sentence."""

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..errors import InputError, hint

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """Base class of validated options: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


class NoOptions(Section):
    """Section without options."""


Checked = TypeVar("Checked", bound=Section)


def check(section: type[Checked], content: Any, what: str, spell: Callable[[str], str] = str) -> Checked:
    """Validate `content`; raises `InputError`.

    Args:
        section: class of the result.
        what: source of the content, for the error message.
        spell: function from a key to its spelling in the error message.
    """
    try:
        return section.model_validate(content)
    except ValidationError as wrong:
        told: dict[str, list[str]] = {}  # a value of a union type has one error per type
        for error in wrong.errors():
            beginning, expected = _sentence(error, section, spell)
            told.setdefault(beginning, []).append(expected)
        said = "; ".join(beginning + ", or ".join(expected) for beginning, expected in list(told.items())[:3])
        raise InputError(f"{what}: {said}" if what else said) from wrong


def check_options(section: type[Checked], given: dict[str, Any]) -> Checked:
    """Validate options of the command line."""
    return check(section, given, "", as_option)


def as_option(name: str) -> str:
    return "--" + name.replace("_", "-")


def split_words(given: Any) -> Any:
    """Words of a comma-separated option; other types are returned unchanged."""
    return tuple(word.strip() for word in given.split(",") if word.strip()) if isinstance(given, str) else given


def split_numbers(given: Any) -> Any:
    """Positive numbers of a comma-separated option, as decimals or fractions: 8/255, 0.5/255, 0.03."""
    if not isinstance(given, str):
        return given
    try:
        found = tuple(float(_quotient(word)) for word in split_words(given))
    except (ValueError, ZeroDivisionError, OverflowError) as wrong:
        raise ValueError(f"is {given}; expected numbers or fractions, such as 1/255,0.01") from wrong
    if not found:
        raise ValueError(f"is {given!r}; expected at least one number")
    if any(x <= 0 for x in found):
        raise ValueError(f"is {given}; expected numbers above 0")
    return found


def read_number(given: Any) -> Any:
    """A number, which text may give as a fraction such as 1/255; any other value unchanged."""
    if not isinstance(given, str):
        return given
    try:
        return float(_quotient(given))
    except (ValueError, ZeroDivisionError, OverflowError) as wrong:
        raise ValueError(f"is {given!r}; expected a number or a fraction, as 1/255") from wrong


def _quotient(word: str) -> Fraction:
    above, sign, below = word.partition("/")
    return Fraction(above) / Fraction(below) if sign else Fraction(above)


Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Fractional = Annotated[float, BeforeValidator(read_number)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(split_numbers)]


def check_names(given: Any, known: Any, what: str) -> list[str]:
    """Names without duplicates; raises `InputError` for an unknown name."""
    if not given:
        raise InputError(f"no {what} was named; expected some of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}; expected one of {', '.join(known)}")
    return list(dict.fromkeys(given))


def _sentence(error: Any, section: type[Section], spell: Callable[[str], str]) -> tuple[str, str]:
    """Two parts of an error message: the problem, and the expected value."""
    # in the location of an error, pydantic names the type of a union, such as list[int], like a key
    place = [part for part in error["loc"] if isinstance(part, str) and "[" not in part]
    where = spell(".".join(place)) if place else ""
    if error["type"] == "invalid_key":
        return f"{error['loc'][0]!r} is not a valid key; ", f"expected {', '.join(section.model_fields)}"
    if error["type"] == "extra_forbidden":
        known = list(_section(section, place[:-1]).model_fields)
        return f"unknown key {where}; ", hint(place[-1], known, "expected " + ", ".join(known), 0.6)
    if error["type"] == "missing":
        return f"{where} is missing", ""
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if error["type"] == "value_error":
        return (f"{where} " if where and message.startswith("is ") else f"{where}: " if where else ""), message
    return f"{where or 'its content'} is {error['input']!r}; expected ", message


def section_class(annotation: Any) -> type[Section] | None:
    """Class of a key whose value is a section, also of `Section | None`; None for other keys."""
    return next(
        (c for c in (annotation, *get_args(annotation)) if isinstance(c, type) and issubclass(c, Section)), None
    )


def _section(section: type[Section], place: list[str]) -> type[Section]:
    """Class of the section at this place, a list of keys."""
    for key in place:
        section = section_class(section.model_fields[key].annotation) or section
    return section
