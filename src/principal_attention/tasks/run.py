"""Read and train a recipe with the kind that its `task` names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..plumbing.sections import check
from ..recipes import Recipe, read_content
from .registry import DEFAULT, kind_named

if TYPE_CHECKING:
    from ..training.run import Run


def read_recipe(name: str | Path, overrides: Sequence[str] = (), sections: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe and check it against the schema of its kind.

    Args:
        overrides: changes as `section.key=value`, with the value in YAML.
        sections: keys and values to merge over the recipe's before the overrides.
    """
    content = read_content(name, overrides, sections)
    try:
        kind = kind_named(content.get("task", DEFAULT))
    except InputError as wrong:
        raise InputError(f"recipe {name}: {wrong}") from wrong
    return check(kind.recipe, content, f"recipe {name}")


def train(recipe: Recipe, out: Path | None = None, **options: Any) -> "Run":
    """Train a recipe and save the run in `out`; `options` are passed to `training.train`."""
    from .. import training  # takes seconds

    return training.train(recipe, kind_named(recipe.task).task, out, **options)
