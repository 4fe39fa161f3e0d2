"""Which model is under test: whether it is there, what records call it, and what tells it from another."""

import hashlib
from pathlib import Path

import torch
from torch import nn

from .._files import CARD, RECORDS
from ..errors import InputError
from ..recipes import RECIPE


def fingerprint(network: nn.Module, *used: object) -> str:
    """Of the weights and of how they are used: another model, or the same one trained further, has another."""
    seen = hashlib.sha256(" ".join(map(str, (network, *used))).encode())
    for name, tensor in network.state_dict().items():
        seen.update(name.encode())
        seen.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return seen.hexdigest()[:16]


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
