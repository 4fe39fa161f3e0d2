"""Keys and values from a person or a file, checked: an unknown key or a value out of range is one sentence."""

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
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


class NoOptions(Section):
    """Where there is nothing to choose."""


Checked = TypeVar("Checked", bound=Section)


def check(section: type[Checked], content: Any, what: str, spell: Callable[[str], str] = str) -> Checked:
    """`content` as a section, or one sentence about what is wrong with it; `spell` writes a key as people know it."""
    try:
        return section.model_validate(content)
    except ValidationError as wrong:
        told: dict[str, list[str]] = {}  # a value that may be of several types has a complaint of each
        for error in wrong.errors():
            beginning, expected = _sentence(error, section, spell)
            told.setdefault(beginning, []).append(expected)
        said = "; ".join(beginning + ", or ".join(expected) for beginning, expected in list(told.items())[:3])
        raise InputError(f"{what}: {said}" if what else said) from wrong


def check_options(section: type[Checked], given: dict[str, Any]) -> Checked:
    """The options of a command line."""
    return check(section, given, "", as_option)


def as_option(name: str) -> str:
    return "--" + name.replace("_", "-")


def split_words(given: Any) -> Any:
    """A comma-separated option as its words; anything else as it is."""
    return tuple(word.strip() for word in given.split(",") if word.strip()) if isinstance(given, str) else given


def split_numbers(given: Any) -> Any:
    """A comma-separated option as numbers above 0, written as decimals or fractions: 8/255, 0.5/255, 0.03."""
    if not isinstance(given, str):
        return given
    try:
        found = tuple(float(_quotient(word)) for word in split_words(given))
    except (ValueError, ZeroDivisionError, OverflowError) as wrong:
        raise ValueError(f"is {given}; expected numbers or fractions, as 1/255,0.01") from wrong
    if not found:
        raise ValueError(f"is {given!r}; expected at least one number")
    if any(x <= 0 for x in found):
        raise ValueError(f"is {given}; expected numbers above 0")
    return found


def _quotient(word: str) -> Fraction:
    above, sign, below = word.partition("/")
    return Fraction(above) / Fraction(below) if sign else Fraction(above)


Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(split_numbers)]


def check_names(given: Any, known: Any, what: str) -> list[str]:
    """Names without repetition; one that is not known is answered with those that are."""
    if not given:
        raise InputError(f"no {what} was named; expected some of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}; expected one of {', '.join(known)}")
    return list(dict.fromkeys(given))


def _sentence(error: Any, section: type[Section], spell: Callable[[str], str]) -> tuple[str, str]:
    """What is wrong, and what was expected, to stand one after the other."""
    # pydantic names a type of several, as list[int], like a key
    place = [part for part in error["loc"] if isinstance(part, str) and "[" not in part]
    where = spell(".".join(place)) if place else ""
    if error["type"] == "invalid_key":
        return f"{error['loc'][0]!r} is not a key; ", f"expected {', '.join(section.model_fields)}"
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
    """Class of the section at this place."""
    for key in place:
        section = section_class(section.model_fields[key].annotation) or section
    return section
