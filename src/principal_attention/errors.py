"""What can go wrong, by name, so that a caller can catch it."""

from collections.abc import Iterable


class InputError(ValueError):
    """An argument has a shape, value or combination that the function cannot take."""


class DtypeError(InputError, TypeError):
    """Tensors of the wrong dtype, or of dtypes that do not fit together."""


class NonFiniteError(InputError):
    """NaN or infinity where a decomposition needs finite numbers."""


class RankError(InputError):
    """More components were asked for than the centred Gram matrix has; `rank` says how many it has."""

    def __init__(self, message: str, rank: int):
        super().__init__(message)
        self.rank = rank


class TrainingError(RuntimeError):
    """A training went wrong by itself; what was good of it is kept."""


class Interrupted(Exception):
    """Someone asked a run to stop; it stopped after a whole step and can be resumed."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped at its limit before it reached its tolerance."""


class LeakWarning(UserWarning):
    """A causal model was set up so that later tokens reach earlier ones."""


def hint(name: str, known: Iterable[str], otherwise: str, likeness: float = 0.4) -> str:
    """For a name that is not known: the nearest that is, or else what may help."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f"did you mean {close[0]}?" if close else otherwise
