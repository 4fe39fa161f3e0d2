"""How a person names a model: `timm:NAME[@WEIGHTS]`, `hf:FOLDER`, `hf:NAME` or a folder; read here and nowhere else."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..plumbing.layout import CARD, RECIPE, RECORDS
from . import pretrained
from .spec import Robustify

EXPECTED = "expected timm:NAME@weights, hf:FOLDER or the folder of a finished run"
ARCHITECTURE = "architecture"  # the key of a card that names what it describes


@dataclass(frozen=True)
class ModelRef:
    """A model by name, before it is opened; `robustify` is put into it when it is."""

    given: str  # as it was written
    library: Literal["timm", "hf", "folder"]
    place: str  # timm's name of it, or the folder or the name on the hub
    weights: str | None = None  # a file or folder, of timm: only
    robustify: Robustify | None = None

    @classmethod
    def of(cls, given: "ModelRef | str | Path", robustify: Robustify | None = None) -> "ModelRef":
        if isinstance(given, ModelRef):
            return given
        text = str(given)
        if text.startswith("timm:"):
            name, _, weights = text.removeprefix("timm:").partition("@")
            return cls(text, "timm", name, weights or None, robustify)
        if text.startswith("hf:"):
            return cls(text, "hf", text.removeprefix("hf:"), None, robustify)
        if not text.strip():
            raise InputError(f"the model is {text!r}; {EXPECTED}")
        return cls(text, "folder", text, None, robustify)

    @property
    def folder(self) -> Path:
        """Where the model is, unless it is one of timm's or on the hub."""
        return Path(self.place).expanduser()

    @property
    def name(self) -> str:
        """How records call it: a timm model by its name, a folder by its own."""
        if self.library == "timm":
            return self.place
        name = self.folder.resolve().name
        if not name:
            raise InputError(f"the model is {self.given!r}; {EXPECTED}")
        return name

    @cached_property
    def card(self) -> dict[str, Any]:
        """What the folder's config.json says; nothing where there is none, or where it cannot be read."""
        if self.library == "timm":
            return {}
        try:
            found = json.loads((self.folder / CARD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def architecture(self) -> str | None:
        """What a card of ours or of timm's says it describes."""
        found = self.card.get(ARCHITECTURE)
        return found if isinstance(found, str) else None

    @property
    def is_timm(self) -> bool:
        """Our own cards name a class of a package; timm's names of models have no dot in them."""
        return self.library == "timm" or (self.architecture is not None and "." not in self.architecture)

    @property
    def is_transformers(self) -> bool:
        return self.architecture is None and (self.library == "hf" or "model_type" in self.card)

    @cached_property
    def config(self) -> dict[str, Any]:
        """transformers' config with all its defaults; empty for models of other libraries."""
        if not self.is_transformers:
            return {}
        from transformers import AutoConfig

        return pretrained.opened(self.place, AutoConfig).to_dict()  # type: ignore[no-any-return]

    def check_finished(self) -> None:
        """Whether there is a model at all, before anything is asked of it."""
        trained, recorded = (self.folder / RECIPE).is_file(), (self.folder / RECORDS).is_file()
        if self.library != "folder" or ((self.folder / CARD).is_file() and (recorded or not trained)):
            return
        if trained:
            raise InputError(
                f"the run in {self.given} has not finished; continue it with: principal train {self.given} --resume"
            )
        raise InputError(f"the model is {self.given}; {EXPECTED}")

    def anchored(self) -> str:
        """The same with whole paths, so that it can be read from any folder."""
        if self.library == "timm":
            return f"timm:{self.place}@{whole(self.weights)}" if self.weights else self.given
        return f"{'hf:' if self.library == 'hf' else ''}{whole(self.place)}"


def whole(path: str) -> str:
    """The whole path of what is there; anything else, as a name on the hub, stays as it is."""
    found = Path(path).expanduser()
    return str(found.resolve()) if found.exists() else path
