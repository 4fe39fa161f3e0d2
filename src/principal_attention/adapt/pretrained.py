"""Open models of transformers from a folder or the hub: weights as safetensors, without running downloaded code."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..plumbing.hub import UNREACHABLE, hub_is_unreachable


class Opened(NamedTuple):
    """A classifier opened by transformers."""

    network: Any
    labels: tuple[str, ...] | None  # names of the classes; None if they have no names
    missing: tuple[str, ...]  # weights that are not in the file and were initialised at random


def open_classifier(name: str, kind: Any, classes: int | None) -> Opened:
    """Open a classifier. `classes` is the number of classes; if the model has another, its last layer is initialised
    at random. Default: the number of the model."""
    other = {} if classes is None else {"num_labels": classes, "ignore_mismatched_sizes": True}
    network, found = opened(name, kind, use_safetensors=True, output_loading_info=True, **other)
    return Opened(network, class_names(network.config), tuple(sorted(found["missing_keys"])))


def opened(name: str, kind: Any, **options: Any) -> Any:
    """Result of `kind.from_pretrained` for a folder or a name on the hub; `InputError` if that fails."""
    if not (found := Path(name).expanduser()).exists():
        if name.startswith(("/", ".", "~")) or not name:
            raise InputError(f"hf:{name} cannot be opened: there is no such folder")
        hub_is_unreachable()
    else:
        name = str(found)
    try:
        with quiet():
            return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as wrong:  # errors of the hub, of the file system and of the format
        there = Path(name).exists() or not hub_is_unreachable()
        reason = (str(wrong).strip() or repr(wrong)).splitlines()[0] if there else UNREACHABLE
        raise InputError(f"hf:{name} cannot be opened: {reason}") from wrong


@contextmanager
def quiet() -> Iterator[None]:
    """Context manager without transformers' progress bars and its reports of weights, which `Opened` replaces."""
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
    """Names of the classes in order; None for transformers' placeholders LABEL_0, LABEL_1 …"""
    named = tuple(str(name) for _, name in sorted(config.id2label.items()))
    return None if named == tuple(f"LABEL_{i}" for i in range(len(named))) else named


def name_classes(config: Any, labels: Sequence[str] | None) -> None:
    """Write the names of the classes to a config; do nothing without names."""
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: number for number, name in enumerate(labels)}
