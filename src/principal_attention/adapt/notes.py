"""Record of a model's `Choice` outside transformers, which `robustify(model)` reads.

The record of a timm model is in `pretrained_cfg["notes"]`, the only field for free text, which timm's `save_for_hf`
writes and `create_model("local-dir:…")` reads. A model with an attribute `rpc_record` has its record there.
"""

import json
from typing import Any

from torch import nn

from ..installs.timm import MARK
from .choice import Choice


def read(model: nn.Module) -> Any:
    """The recorded `Choice` as JSON, not yet checked; None if there is none."""
    if hasattr(model, "rpc_record"):
        return model.rpc_record
    marked = [note.removeprefix(MARK) for note in _notes(model) if note.startswith(MARK)]
    try:
        return json.loads(marked[-1]) if marked else None
    except json.JSONDecodeError:
        return marked[-1]


def write(model: nn.Module, choice: Choice | None) -> None:
    """Record the choice in the model; None deletes the record."""
    if hasattr(model, "rpc_record"):
        setattr(model, "rpc_record", None if choice is None else choice.to_json())  # noqa: B010 (typed as a tensor)
        return
    config: Any = getattr(model, "pretrained_cfg", None)
    if not isinstance(config, dict):
        return
    notes = [note for note in _notes(model) if not note.startswith(MARK)]
    if choice is not None:
        notes.append(MARK + json.dumps(choice.to_json()))
    if notes:
        config["notes"] = tuple(notes)
    else:
        config.pop("notes", None)


def _notes(model: nn.Module) -> tuple[str, ...]:
    config: Any = getattr(model, "pretrained_cfg", None)
    return tuple(config.get("notes") or ()) if isinstance(config, dict) else ()
