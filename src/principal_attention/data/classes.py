"""Classes of examples: check labels, and number classes by their names."""

from collections.abc import Sequence
from typing import Any

from ..errors import InputError

UNLABELLED = -1  # label of an example of unlabelled data


def check_label(label: Any, what: str, classes: int | None = None) -> int:
    """Return `label` if it is a class number, below `classes` if given; `what`: the example, for the error message."""
    if isinstance(label, int) and not isinstance(label, bool) and (classes is None or 0 <= label < classes):
        return label
    told = "a class number" if classes is None else f"a class number from 0 to {classes - 1}"
    raise InputError(f"the label of {what} is {label!r}; expected {told}")


def renumber(classes: Sequence[str] | None, names: Sequence[str] | None, split: str) -> tuple[int, ...] | None:
    """Position in `names` of each class of a split; None if either has no names or they are the same."""
    if classes is None or names is None or tuple(classes) == tuple(names):
        return None
    numbers = numbers_of(classes, names)
    if -1 in numbers:
        unknown = classes[numbers.index(-1)]
        raise InputError(f"the split {split} has a class {unknown!r}; expected some of {', '.join(names[:5])}")
    return numbers


def numbers_of(classes: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Position in `names` of each class, ignoring case and surrounding spaces; −1 if absent."""

    def plain(name: str) -> str:
        return name.strip().casefold()

    known = {plain(name): number for number, name in enumerate(names)}
    known |= {name: number for number, name in enumerate(names)}
    return tuple(known.get(name, known.get(plain(name), -1)) for name in classes)
