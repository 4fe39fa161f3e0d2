"""Reading a recipe: built in or a file, on top of its `base`, with `key=value` on top of that, then checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, hint
from ..plumbing.files import write_text
from ..plumbing.layout import RECIPE
from .schema import Recipe

BUILT_IN = Path(__file__).parent


def list_recipes() -> list[str]:
    """The built-in ones, as `cifar10/symvit`; names that begin with `_` are there to be inherited."""
    found = (path.relative_to(BUILT_IN).with_suffix("") for path in BUILT_IN.rglob("*.yaml"))
    return sorted(str(path.as_posix()) for path in found if not path.name.startswith("_"))


def find_recipe(name: str | Path) -> Path:
    """A file, a run's folder, or the name of a built-in recipe."""
    given = Path(name)
    for path in (given, given / RECIPE, BUILT_IN / f"{name}.yaml"):
        if path.is_file():
            return path
    nearest = hint(str(name), list_recipes(), "`principal list recipes` names them")
    raise InputError(f"there is no recipe {name}: expected a YAML file or a built-in name; {nearest}")


def read_content(name: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A recipe's keys and values on top of its base, not yet checked; each override is `section.key=value`, the value
    written as in YAML."""
    path = find_recipe(name)
    content = _inherit(path, ())
    content.setdefault("name", "-".join(_words(path)))
    for override in overrides:
        _override(content, override)
    return content


def write_recipe(path: Path, recipe: Recipe) -> None:
    write_text(path, yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def _words(path: Path) -> tuple[str, ...]:
    return path.relative_to(BUILT_IN).with_suffix("").parts if path.is_relative_to(BUILT_IN) else (path.stem,)


def _inherit(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if path in above:
        raise InputError(f"recipe {above[0]} inherits from itself: {' → '.join(p.stem for p in (*above, path))}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise InputError(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {type(content).__name__}; expected keys and values, as in `seed: 0`")
    base = content.pop("base", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise InputError(f"base of {path} is {base!r}; expected the name of a recipe")
    beside = path.parent / f"{base}.yaml"
    below = beside if beside.is_file() else find_recipe(base)
    return _merge(_inherit(below, (*above, path)), content)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Sections are merged key by key; anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(merged.get(key), dict) and isinstance(value, dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _override(content: dict[str, Any], override: str) -> None:
    keys, sign, text = override.partition("=")
    if not sign or not all(keys.split(".")):
        raise InputError(f"{override!r} is not an override; expected section.key=value, as in optimizer.lr=1e-3")
    *sections, last = keys.split(".")
    for section in sections:
        if content.get(section) is None:
            content[section] = {}
        if not isinstance(content[section], dict):
            raise InputError(f"{override!r}: {section} is {content[section]!r} and has no keys of its own")
        content = content[section]
    try:
        content[last] = yaml.safe_load(text)
    except yaml.YAMLError as wrong:
        raise InputError(f"{override!r}: the value is not YAML: {' '.join(str(wrong).split())}") from wrong
