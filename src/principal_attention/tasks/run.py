"""The engines, handed the kind that a recipe or a model is of."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..plumbing.sections import check
from ..recipes import Recipe, read_content
from .registry import DEFAULT, kind_named

if TYPE_CHECKING:
    from ..training.run import Run


def read_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe, checked as the kind that its `task` names; each override is `section.key=value`, written as in YAML."""
    content = read_content(name, overrides)
    try:
        kind = kind_named(content.get("task", DEFAULT))
    except InputError as wrong:
        raise InputError(f"recipe {name}: {wrong}") from wrong
    return check(kind.recipe, content, f"recipe {name}")


def train(recipe: Recipe, out: Path | None = None, **options: Any) -> "Run":
    """Train a recipe into a folder; the options are those of `training.train`."""
    from .. import training  # takes seconds

    return training.train(recipe, kind_named(recipe.task).task, out, **options)
