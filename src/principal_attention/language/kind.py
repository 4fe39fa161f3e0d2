"""What a model is, by its card alone: no library of texts is needed to learn that it looks at images."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..plumbing.layout import CARD

ARCHITECTURE = "architecture"  # the key of a card that names it
LANGUAGE, CLASSIFIER = "principal_attention.LanguageModel", "principal_attention.LastPosition"


def kind_of(folder: Path) -> str | None:
    """LANGUAGE or CLASSIFIER, or None where the folder holds something else."""
    kind = _card(folder).get(ARCHITECTURE)
    return kind if kind in (LANGUAGE, CLASSIFIER) else None


def is_theirs(folder: Path) -> bool:
    """Whether a run's folder holds a model of transformers."""
    return "model_type" in _card(folder)


def reads_text(model: str) -> bool:
    """Whether a model is one of text and not of images."""
    if model.startswith("timm:"):
        return False
    folder = Path(model.removeprefix("hf:")).expanduser()
    if kind_of(folder) is not None:
        return True
    if not model.startswith("hf:") and not is_theirs(folder):
        return False
    from transformers import AutoConfig

    config = opened(model, AutoConfig)
    return hasattr(config, "vocab_size") and not hasattr(config, "image_size")


def opened(model: str, kind: Any, **options: Any) -> Any:
    """What a class of transformers makes of a folder or a name on the hub; nothing in it is executed."""
    name = model.removeprefix("hf:")
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


def _card(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
