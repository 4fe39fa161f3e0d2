"""Where a timm model records the choice: its `pretrained_cfg` has fixed fields, and `notes` is the one for free text.

It goes with the model through timm's `save_for_hf` and `create_model("local-dir:…")`; `robustify(model)` reads it.
"""

import json
from typing import Any

from torch import nn

from .choice import Choice

_MARK = "principal-attention: "


def read(model: nn.Module) -> Any:
    """The recorded choice as JSON, or None; not yet checked."""
    marked = [note.removeprefix(_MARK) for note in _notes(model) if note.startswith(_MARK)]
    try:
        return json.loads(marked[-1]) if marked else None
    except json.JSONDecodeError:
        return marked[-1]


def write(model: nn.Module, choice: Choice | None) -> None:
    config: Any = getattr(model, "pretrained_cfg", None)
    if not isinstance(config, dict):
        return
    notes = [note for note in _notes(model) if not note.startswith(_MARK)]
    if choice is not None:
        notes.append(_MARK + json.dumps(choice.to_json()))
    if notes:
        config["notes"] = tuple(notes)
    else:
        config.pop("notes", None)


def _notes(model: nn.Module) -> tuple[str, ...]:
    config: Any = getattr(model, "pretrained_cfg", None)
    return tuple(config.get("notes") or ()) if isinstance(config, dict) else ()
