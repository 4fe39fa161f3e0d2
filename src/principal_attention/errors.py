"""Exceptions and warnings that this package raises, as named classes that a caller can catch."""

from collections.abc import Iterable


class InputError(ValueError):
    """An argument has an invalid shape or value, or two arguments cannot be combined."""


class DtypeError(InputError, TypeError):
    """An argument has the wrong type or dtype, or two tensors have different dtypes."""


class NonFiniteError(InputError):
    """A tensor holds NaN or infinity where finite numbers are required."""


class RankError(InputError):
    """More components were requested than the centred Gram matrix has; `rank` is the number available."""

    def __init__(self, message: str, rank: int):
        super().__init__(message)
        self.rank = rank


class TrainingError(RuntimeError):
    """Training diverged (NaN or infinite loss or gradient); earlier checkpoints are kept."""


class Interrupted(Exception):
    """A run was stopped by a signal; it ended after a complete step and can be resumed."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped at its limit before it reached its tolerance."""


class LeakWarning(UserWarning):
    """A causal model is configured so that predictions can depend on later tokens."""


def hint(name: str, known: Iterable[str], otherwise: str, likeness: float = 0.4) -> str:
    """Suggest the known name most similar to an unknown `name`; return `otherwise` if none is similar enough."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f"did you mean {close[0]}?" if close else otherwise
