"""Test of whether attention is kernel PCA: measurements of every head of a model, compared with null models.

capture   queries, keys, values and outputs of every head, without changing the model
measure   all metrics of one attention call (axes, values, printed, similarity) and of its null models
run       measurements on every example of a data set, resumable; bootstrap and summary compute the records
verdicts  whether each claim holds, by stated rules
"""

from .capture import capture
from .heads import Heads
from .measure import measure

__all__ = ["Heads", "capture", "measure"]
