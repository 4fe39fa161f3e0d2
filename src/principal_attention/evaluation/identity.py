"""Which model is under test: whether it is there, what records call it, and what tells it from another."""

from pathlib import Path

from ..errors import InputError
from ..plumbing.layout import CARD, RECIPE, RECORDS


def check_finished(model: str) -> None:
    """Whether there is a model at all, before anything is asked of its kind."""
    folder = Path(model).expanduser()
    trained, recorded = (folder / RECIPE).is_file(), (folder / RECORDS).is_file()
    if model.startswith(("timm:", "hf:")) or ((folder / CARD).is_file() and (recorded or not trained)):
        return
    if trained:
        raise InputError(f"the run in {model} has not finished; continue it with: principal train {model} --resume")
    raise _no_model(model)


def _no_model(model: str) -> InputError:
    return InputError(f"the model is {model}; expected timm:NAME@weights, hf:FOLDER or the folder of a finished run")


def name_of(model: str) -> str:
    """How records call it: a timm model by its name, a folder by its own."""
    if model.startswith("timm:"):
        return model.removeprefix("timm:").partition("@")[0]
    name = Path(model.removeprefix("hf:")).expanduser().resolve().name
    if not name:
        raise _no_model(repr(model))
    return name
