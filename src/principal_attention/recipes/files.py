"""Recipe files: a built-in name or a path, merged over its `base`, with `key=value` overrides on top."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, hint
from ..plumbing.files import write_text
from ..plumbing.layout import RECIPE
from .schema import Recipe

BUILT_IN = Path(__file__).parent


def list_recipes() -> list[str]:
    """Names of the built-in recipes, as `cifar10/symvit`. Files that begin with `_` only serve as a `base`."""
    found = (path.relative_to(BUILT_IN).with_suffix("") for path in BUILT_IN.rglob("*.yaml"))
    return sorted(str(path.as_posix()) for path in found if not path.name.startswith("_"))


def headline(name: str) -> str:
    """The line about a built-in recipe: the second of its file, after the command that runs it."""
    return (BUILT_IN / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[1].removeprefix("# ")


def find_recipe(name: str | Path) -> Path:
    """Path of a recipe, given as a YAML file, a run folder, or the name of a built-in recipe."""
    given = Path(name)
    for path in (given, given / RECIPE, BUILT_IN / f"{name}.yaml"):
        if path.is_file():
            return path
    nearest = hint(str(name), list_recipes(), "`principal list recipes` names them")
    raise InputError(
        f"there is no recipe {str(name) or repr(name)}: expected a YAML file or a built-in name; {nearest}"
    )


def read_content(
    name: str | Path, overrides: Sequence[str] = (), sections: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Keys and values of a recipe merged over its base, not yet checked. Each override is `section.key=value`, with
    the value written as in YAML."""
    path = find_recipe(name)
    content = _inherit(path, ())
    content.setdefault("name", "-".join(_words(path)))
    content = _merge(content, dict(sections or {}))
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
