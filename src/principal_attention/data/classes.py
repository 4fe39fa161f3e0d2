"""Classes of examples: labels that are numbers in range, and numbers that mean the same names everywhere."""

from collections.abc import Sequence
from typing import Any

from ..errors import InputError


def check_label(label: Any, what: str, classes: int | None = None) -> int:
    """A class number, below `classes` where that is known; `what` names the example."""
    if isinstance(label, int) and not isinstance(label, bool) and (classes is None or 0 <= label < classes):
        return label
    told = "a class number" if classes is None else f"a class number from 0 to {classes - 1}"
    raise InputError(f"the label of {what} is {label!r}; expected {told}")


def renumber(classes: Sequence[str] | None, names: Sequence[str] | None, split: str) -> tuple[int, ...] | None:
    """The number of each of a split's classes among these names; None where either has no names, or both the same."""
    if classes is None or names is None or tuple(classes) == tuple(names):
        return None
    numbers = numbers_of(classes, names)
    if -1 in numbers:
        unknown = classes[numbers.index(-1)]
        raise InputError(f"the split {split} has a class {unknown!r}; expected some of {', '.join(names[:5])}")
    return numbers


def numbers_of(classes: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """The number of each class among these names, spelled the same but for case and spaces around it; −1: none."""

    def plain(name: str) -> str:
        return name.strip().casefold()

    known = {plain(name): number for number, name in enumerate(names)}
    known |= {name: number for number, name in enumerate(names)}
    return tuple(known.get(name, known.get(plain(name), -1)) for name in classes)
