"""Which examples a limited evaluation takes."""

from collections.abc import Sequence

import numpy as np


def stratified(labels: Sequence[int]) -> list[int]:
    """All examples, one of each class after the other, in an order that depends on the labels alone: the first N hold
    every class as often as any other (but for one, and for classes that run out), and hold the first N − 1."""
    given = np.asarray(labels)
    random = np.random.default_rng(0)
    mixed = random.permutation(len(given))
    by_class = mixed[np.argsort(given[mixed], kind="stable")]
    sorted_labels = given[by_class]
    starts = np.searchsorted(sorted_labels, sorted_labels, side="left")
    round_ = np.arange(len(given)) - starts
    return [int(i) for i in by_class[np.lexsort((random.random(len(given)), round_))]]
