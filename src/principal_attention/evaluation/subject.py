"""The model under test, and what can be asked of it."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..modules import RPC
from ..recipes import RECIPE
from ..vision.models.classifier import Classifier
from ..vision.models.load import load_classifier
from ..vision.models.vit import CARD
from .pixels import OnPixels


class Subject:
    """A classifier that takes images in [0, 1] (`on_pixels`), or as its own normaliser makes them (`network`)."""

    def __init__(self, model: str, device: torch.device | str = "cpu"):
        self.classifier: Classifier = load_classifier(model)
        self.view = self.classifier.view
        self.network: nn.Module = self.classifier.model.to(device).eval().requires_grad_(False)
        self.on_pixels = OnPixels(self.network, self.view.mean, self.view.std).to(device)
        self.name = name_of(model)

    def normalised(self, images: Tensor) -> Tensor:
        return (images - self.on_pixels.mean) / self.on_pixels.std

    @property
    def pursues(self) -> bool:
        """Whether there is RPC-Attention in it, its own or put there by `robustify`."""
        return any(
            hasattr(module, "rpc_pursuit") or isinstance(getattr(module, "mechanism", None), RPC)
            for module in self.network.modules()
        )

    def fingerprint(self) -> str:
        return fingerprint(self.network, self.view)


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
    if model.startswith(("timm:", "hf:")) or (folder / CARD).is_file():
        return
    if (folder / RECIPE).is_file():
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
