"""Kinds of task. Each kind is one subpackage, which exports a `Kind` as `KIND`.

kind        the interface of a kind
registry    kinds by name, and the kind of a model
run         read and train a recipe with its kind
checkpoint  the model that a command opens, from a finished run or a checkpoint
classes     accuracy, shared by the kinds that classify
texts       data, shared by the kinds that read text
"""

from .kind import Kind
from .registry import all_kinds, kind_named, kind_of, register
from .run import read_recipe, train

__all__ = ["Kind", "all_kinds", "kind_named", "kind_of", "read_recipe", "register", "train"]
