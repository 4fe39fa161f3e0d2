"""Recipes: YAML files that describe a training, checked before anything runs."""

from .files import find_recipe, headline, list_recipes, read_content, write_recipe
from .printed import print_recipe
from .schema import Recipe

__all__ = ["Recipe", "find_recipe", "headline", "list_recipes", "print_recipe", "read_content", "write_recipe"]
