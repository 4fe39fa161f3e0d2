"""Recipes: what to train, on what, and how, as YAML checked before anything runs."""

from ..plumbing.layout import RECIPE
from .files import find_recipe, list_recipes, read_recipe, write_recipe
from .schema import ImageRecipe, LanguageRecipe, Recipe, TextRecipe

__all__ = [
    "RECIPE", "ImageRecipe", "LanguageRecipe", "Recipe", "TextRecipe", "find_recipe", "list_recipes",
    "read_recipe", "write_recipe",
]  # fmt: skip
