"""Options of kinds of models and their suites: grouped by owner in the help, and rejected if no owner is in use."""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from ..errors import InputError
from ..plumbing.sections import Section, as_option, check_options
from ..tasks import Kind, all_kinds

# function from a kind to its sections of options, each with its suite; "" for the kind itself
Sections = Callable[[Kind], Iterable[tuple[str, type[Section]]]]


PANEL = 74  # maximum length of a panel's title in a terminal of 80 columns
METAVAR = 20  # maximum length of a metavar


class Owner(NamedTuple):
    """Kind of models, and suite, that an option belongs to."""

    kind: Kind
    suite: str
    field: FieldInfo


Offers = dict[str, list[Owner]]  # owners by name of the option


def find_offers(sections: Sections) -> Offers:
    """Options of all kinds, with their owners."""
    found: Offers = {}
    for kind in all_kinds():
        for suite, section in sections(kind):
            for name, field in section.model_fields.items():
                found.setdefault(name, []).append(Owner(kind, suite, field))
    return found


def with_options(function: Callable[..., None], offers: Offers) -> Callable[..., None]:
    """Command in whose signature `**given` is replaced by these options."""

    @wraps(function)
    def command(*args: Any, **options: Any) -> None:
        function(*args, **options)

    fixed = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    panels = list(dict.fromkeys(_panel(owners) for owners in offers.values()))
    order = sorted(offers, key=lambda name: panels.index(_panel(offers[name])))  # keeps the options of a panel together
    made = [*fixed, *(_parameter(name, offers[name]) for name in order)]
    command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in made}
    return command


def _parameter(name: str, owners: Sequence[Owner]) -> inspect.Parameter:
    flag = all(owner.field.annotation is bool for owner in owners)
    option = typer.Option(
        as_option(name), help=_help(owners), rich_help_panel=_panel(owners), show_default=False,
        metavar=None if flag else _joined(_metavar(owner.field) for owner in owners),
    )  # fmt: skip
    kind: Any = bool if flag else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False if flag else None, annotation=Annotated[kind, option]
    )


def _panel(owners: Sequence[Owner]) -> str:
    kinds = ", ".join(dict.fromkeys(owner.kind.title for owner in owners))
    suites = ", ".join(dict.fromkeys(owner.suite for owner in owners if owner.suite))
    if not suites:
        return f"Options of {kinds}"
    title = f"Options of --suite {suites}"
    return titled if len(titled := f"{title} ({kinds})") <= PANEL else title


def _help(owners: Sequence[Owner]) -> str:
    """Meaning and default of an option, given for each suite if suites differ in it."""
    told = {owner.suite: _sentence(owner.field) for owner in owners}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    several: dict[str, list[str]] = {}
    for suite, sentence in told.items():
        several.setdefault(sentence, []).append(suite)
    return " ".join(f"{', '.join(suites)}: {sentence}" for sentence, suites in several.items())


def _sentence(field: FieldInfo) -> str:
    said, default = field.description or "", field.default
    if "Default:" in said or default is None or default is False or default == ():
        return said
    return f"{said} Default: {','.join(map(str, default)) if isinstance(default, tuple) else default}."


def _joined(metavars: Iterable[str]) -> str:
    """Metavar for all owners; NAME if it would be too long, since the help names the values."""
    return "NAME" if len(joined := "|".join(dict.fromkeys(metavars))) > METAVAR else joined


def _metavar(field: FieldInfo) -> str:
    kind = field.annotation
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return {float: "NUMBER,…", int: "N,…"}.get(get_args(kind)[0], "NAME,…")
    names: dict[Any, str] = {int: "N", float: "NUMBER", Path: "PATH"}
    return names.get(kind, "TEXT")


def written(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given on the command line."""
    return {name: x for name, x in given.items() if x is not None and x is not False}


def pick(section: type[Section], given: Mapping[str, Any]) -> Any:
    """Validated section from the given options that belong to it."""
    return check_options(section, {name: x for name, x in given.items() if name in section.model_fields})


def refuse_others(offers: Offers, given: Iterable[str], kind: Kind, model: str, asked: Sequence[str] = ()) -> None:
    """Raise `InputError` for an option that this kind lacks or that belongs to a suite that is not asked for."""
    for name in given:
        own = [owner.suite for owner in offers[name] if owner.kind.name == kind.name]
        if not own:
            others = " and ".join(dict.fromkeys(owner.kind.title for owner in offers[name]))
            raise InputError(f"{as_option(name)} is an option of {others}; {model} is one of {kind.title}")
        if not {"", *asked} & set(own):
            raise InputError(
                f"{as_option(name)} is an option of --suite {' and '.join(own)}, and --suite is {','.join(asked)}; "
                f"add {own[0]} to --suite, or drop {as_option(name)}"
            )
