"""Order of the examples in a limited evaluation."""

from collections.abc import Sequence

import numpy as np


def stratified(labels: Sequence[int]) -> list[int]:
    """Indices of all examples in a stratified random order, which depends only on the labels.

    Among the first N, for any N, the counts of two classes differ by at most one, unless a class has too few examples.
    """
    given = np.asarray(labels)
    random = np.random.default_rng(0)
    mixed = random.permutation(len(given))
    by_class = mixed[np.argsort(given[mixed], kind="stable")]
    sorted_labels = given[by_class]
    starts = np.searchsorted(sorted_labels, sorted_labels, side="left")
    round_ = np.arange(len(given)) - starts
    return [int(i) for i in by_class[np.lexsort((random.random(len(given)), round_))]]
