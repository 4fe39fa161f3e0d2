"""Kinds of task, a room each. A room holds all that only its kind knows, and exports it as one `KIND`.

kind        what a room has to offer
registry    kinds by name; whose model is this?
run         a recipe read and trained, a model evaluated: the engines, handed the kind that it takes
classes     what kinds with right and wrong answers share
texts       what kinds that read text share
"""

from .kind import Kind
from .registry import all_kinds, kind_named, kind_of, register
from .run import read_recipe, train

__all__ = ["Kind", "all_kinds", "kind_named", "kind_of", "read_recipe", "register", "train"]
