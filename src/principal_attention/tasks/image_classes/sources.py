"""Source models of transferred attacks."""

from typing import TYPE_CHECKING

from ...adapt.named import ModelRef
from ...adapt.spec import Robustify
from ...errors import InputError

if TYPE_CHECKING:
    from ...evaluation.suite import Bench
    from .subject import ImageSubject

SOURCE = "Model that transferred attacks are made on."
SOURCE_ROBUSTIFY = "RPC-Attention to put into --source, as in --robustify."


def open_source(bench: "Bench", source: str | None, robustify: str | None) -> "ImageSubject | None":
    """The source model; its image size, channels and classes must match those of the evaluated model."""
    from .subject import ImageSubject

    if source is None:
        if robustify is not None:
            raise InputError("--source-robustify was given without --source")
        return None
    ref = ModelRef.of(source, Robustify.parse(robustify) if robustify is not None else None)
    ref.check_finished()
    subject, other = bench.subject, ImageSubject(ref, bench.device)
    for what in ("size", "channels", "num_classes"):
        theirs, ours = getattr(other.view, what), getattr(subject.view, what)
        if theirs != ours:
            raise InputError(
                f"--source {other.name} has {what} {theirs} and {subject.name} has {ours}; expected the same"
            )
    names = other.classifier.labels, subject.classifier.labels
    if None not in names and names[0] != names[1]:
        raise InputError(
            f"--source {other.name} numbers its classes differently from {subject.name}; expected the same order"
        )
    return other
