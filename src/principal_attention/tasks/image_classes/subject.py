"""An image classifier under evaluation."""

import torch
from torch import Tensor, nn

from ...adapt.describe import describe, name_of
from ...adapt.named import ModelRef
from ...errors import InputError
from ...plumbing.fingerprints import fingerprint
from ...vision.models.classifier import Classifier
from ...vision.models.load import load_classifier
from ...vision.pixels import OnPixels


class ImageSubject:
    """An image classifier: `on_pixels` takes images in [0, 1], `network` takes normalised images."""

    def __init__(self, model: ModelRef | str, device: torch.device | str = "cpu"):
        ref = ModelRef.of(model)
        self.classifier: Classifier = load_classifier(ref)
        self.view = self.classifier.view
        self.network: nn.Module = self.classifier.model.to(device).eval().requires_grad_(False)
        self.on_pixels = OnPixels(self.network, self.view.mean, self.view.std).to(device)
        self.name = name_of(ref, self.classifier.network)
        self.robustify = describe(self.classifier.network)

    def check_whole(self) -> None:
        """Raise if weights are missing from the model's file."""
        if missing := self.classifier.missing:
            raise InputError(f"{self.name} has no weights for {missing[-1]}: fine-tune it first")

    def example(self) -> Tensor:
        """A grey image, for measuring the time of a forward pass."""
        return torch.zeros(1, self.view.channels, self.view.size, self.view.size, device=self.on_pixels.mean.device)

    def normalised(self, images: Tensor) -> Tensor:
        return (images - self.on_pixels.mean) / self.on_pixels.std

    def fingerprint(self) -> str:
        return fingerprint(self.network, self.view)
