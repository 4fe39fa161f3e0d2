"""Is this attention kernel PCA? Every head of a model measured, beside nulls, and judged by stated rules.

capture   the queries, keys, values and outputs of every head, the model untouched
measure   all numbers of one attention call: axes, values, printed, similarity; and of its nulls
run       every example of a data set, resumable; bootstrap and summary make records of it
verdicts  what the records say of each claim
"""

from .capture import capture
from .heads import Heads
from .measure import measure

__all__ = ["Heads", "capture", "measure"]
