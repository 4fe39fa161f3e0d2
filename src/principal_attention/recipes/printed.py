"""A recipe printed in full: every key with its value, its meaning and its default, as YAML that can be edited."""

import math
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..plumbing.sections import Section, section_class

WIDTH = 80


def print_recipe(recipe: Section) -> str:
    """YAML of a recipe, with a comment above each key: its meaning, and its default where the recipe differs from it.

    Keys of sections that are null are printed as comments.
    """
    return "\n".join(_lines(type(recipe), recipe, 0)) + "\n"


def _lines(section: type[Section], values: Section | None, depth: int) -> Iterator[str]:
    for key, field in section.model_fields.items():
        below = section_class(field.annotation)
        value = field.get_default(call_default_factory=True) if values is None else getattr(values, key)
        yield from _comment(field, value, depth)
        if below is None:
            yield f"{'  ' * depth}{key}: {_written(value)}"
            continue
        inner = value if isinstance(value, Section) else None
        yield f"{'  ' * depth}{key}:" + (" null" if inner is None else "")
        lines = _lines(below, inner, depth + 1)
        yield from lines if inner is not None else (f"# {line}".replace("# #", "# ", 1) for line in lines)


def _comment(field: FieldInfo, value: Any, depth: int) -> list[str]:
    default = field.get_default(call_default_factory=True)
    said = field.description or ""
    if default is not PydanticUndefined and not isinstance(default, Section) and default != value:
        said += f" Default: {_written(default)}."
    mark = "  " * depth + "# "
    return textwrap.wrap(said, WIDTH, initial_indent=mark, subsequent_indent=mark)


def _written(value: Any) -> str:
    """A value as YAML on one line."""
    if value is PydanticUndefined:
        return "REQUIRED"
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")
