"""Recipes: what to train, on what, and how, as YAML checked before anything runs."""

from .files import find_recipe, list_recipes, read_content, write_recipe
from .schema import Recipe

__all__ = ["Recipe", "find_recipe", "list_recipes", "read_content", "write_recipe"]
