"""`ModelRef`, which parses the name of a model: `timm:NAME[@WEIGHTS]`, `hf:FOLDER`, `hf:NAME` or a folder."""

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
ARCHITECTURE = "architecture"  # key in config.json whose value is the class or the name of the model


@dataclass(frozen=True)
class ModelRef:
    """Parsed name of a model that has not been opened yet."""

    given: str  # the name as it was written
    library: Literal["timm", "hf", "folder"]
    place: str  # name of the model in timm or on the hub, or its folder
    weights: str | None = None  # file or folder of the weights; for library "timm" only
    robustify: Robustify | None = None  # RPC-Attention to put into the model when it is opened

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
        """Folder of the model; meaningless for a name in timm or on the hub."""
        return Path(self.place).expanduser()

    @property
    def name(self) -> str:
        """Name of the model in records: its name in timm, or the last part of its folder."""
        if self.library == "timm":
            return self.place
        name = self.folder.resolve().name
        if not name:
            raise InputError(f"the model is {self.given!r}; {EXPECTED}")
        return name

    @cached_property
    def card(self) -> dict[str, Any]:
        """Content of config.json in the folder; empty if there is none or it cannot be read."""
        if self.library == "timm":
            return {}
        try:
            found = json.loads((self.folder / CARD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def architecture(self) -> str | None:
        """Value of "architecture" in config.json: the class of a model of this package, or a name in timm."""
        found = self.card.get(ARCHITECTURE)
        return found if isinstance(found, str) else None

    @property
    def is_timm(self) -> bool:
        """Whether it is a timm model. Names in timm have no dot; models of this package name their class with dots."""
        return self.library == "timm" or (self.architecture is not None and "." not in self.architecture)

    @property
    def is_transformers(self) -> bool:
        return self.architecture is None and (self.library == "hf" or "model_type" in self.card)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Config of a transformers model, with defaults; empty for models of other libraries."""
        if not self.is_transformers:
            return {}
        from transformers import AutoConfig

        return pretrained.opened(self.place, AutoConfig).to_dict()  # type: ignore[no-any-return]

    def check_finished(self, instead: str = "") -> None:
        """Raise `InputError` if the folder holds no model, or an unfinished run; `instead` says what else can be done
        with one."""
        trained, recorded = (self.folder / RECIPE).is_file(), (self.folder / RECORDS).is_file()
        if self.library != "folder" or ((self.folder / CARD).is_file() and (recorded or not trained)):
            return
        if trained:
            other = f"{instead}, or " if instead else ""
            raise InputError(
                f"the run in {self.given} has not finished; {other}continue it with: "
                f"principal train {self.given} --resume"
            )
        raise InputError(f"the model is {self.given}; {EXPECTED}")

    def anchored(self) -> str:
        """The name with absolute paths, which is valid from any working directory."""
        if self.library == "timm":
            return f"timm:{self.place}@{whole(self.weights)}" if self.weights else self.given
        return f"{'hf:' if self.library == 'hf' else ''}{whole(self.place)}"


def whole(path: str) -> str:
    """The absolute path if `path` exists; else `path` itself, such as a name on the hub."""
    found = Path(path).expanduser()
    return str(found.resolve()) if found.exists() else path
