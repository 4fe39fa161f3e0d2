"""Recipes: what to train, on what, and how, as YAML checked before anything runs."""

from .files import find_recipe, list_recipes, read_recipe, write_recipe
from .schema import ImageRecipe, LanguageRecipe, Recipe, TextRecipe

__all__ = [
    "ImageRecipe", "LanguageRecipe", "Recipe", "TextRecipe", "find_recipe", "list_recipes", "read_recipe",
    "write_recipe",
]  # fmt: skip
