"""Opening models of transformers: from a folder or the hub, as safetensors, without running anything they bring."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..errors import InputError


class Opened(NamedTuple):
    """A classifier of transformers."""

    network: Any
    labels: tuple[str, ...] | None  # the names of its classes, where it has names
    missing: tuple[str, ...]  # weights that were not there and are random


def open_classifier(name: str, kind: Any, classes: int | None) -> Opened:
    """With its own classes, or with so many: a last layer of another size is then made anew."""
    other = {} if classes is None else {"num_labels": classes, "ignore_mismatched_sizes": True}
    network, found = opened(name, kind, use_safetensors=True, output_loading_info=True, **other)
    return Opened(network, class_names(network.config), tuple(sorted(found["missing_keys"])))


def opened(name: str, kind: Any, **options: Any) -> Any:
    """What a class of transformers makes of a folder or a name on the hub."""
    try:
        with quiet():
            return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as wrong:  # the hub's, the file system's and the format's own words
        raise InputError(f"hf:{name} cannot be opened: {str(wrong).strip().splitlines()[0]}") from wrong


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars and its reports of weights: what they are about is answered here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def class_names(config: Any) -> tuple[str, ...] | None:
    """The names of the classes in order; transformers' own LABEL_0, LABEL_1 … are none."""
    named = tuple(str(name) for _, name in sorted(config.id2label.items()))
    return None if named == tuple(f"LABEL_{i}" for i in range(len(named))) else named


def name_classes(config: Any, labels: Sequence[str] | None) -> None:
    """Write the names of the classes into a config, where there are any."""
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: number for number, name in enumerate(labels)}
