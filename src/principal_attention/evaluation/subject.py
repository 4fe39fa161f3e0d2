"""A classifier of images under test, and what can be asked of it."""

import torch
from torch import Tensor, nn

from ..modules import RPC
from ..plumbing.fingerprints import fingerprint
from ..vision.models.classifier import Classifier
from ..vision.models.load import load_classifier
from ..vision.pixels import OnPixels
from .identity import name_of


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
