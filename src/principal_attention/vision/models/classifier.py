"""A classifier: the network, the images it wants to see, and how both are written to a folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timm.models import save_for_hf
from torch import Tensor, nn

from ...adapt.pretrained import name_classes
from ...plumbing.files import filling


@dataclass(frozen=True)
class View:
    """The images a model was made for."""

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int
    crop_pct: float = 0.875
    interpolation: str = "bicubic"


@dataclass(frozen=True)
class Classifier:
    model: nn.Module  # normalised images to logits
    view: View
    args: Mapping[str, Any]  # what the model's name was called with, for the card
    labels: tuple[str, ...] | None = None  # the names of the classes
    missing: tuple[str, ...] = ()  # weights that were not in the folder and are random

    @property
    def network(self) -> nn.Module:
        """Without what makes it take plain tensors: what `robustify` knows."""
        return self.model.network if isinstance(self.model, HuggingFace) else self.model

    def save(self, folder: Path, model: nn.Module | None = None) -> None:
        """Weights and card into a folder, atomically; `model` may hold other weights of the same network."""
        with filling(folder) as partial:
            self._write(partial, self.model if model is None else model)

    def _write(self, folder: Path, model: nn.Module) -> None:
        if not isinstance(model, HuggingFace):
            config = {"label_names": list(self.labels)} if self.labels else None
            save_for_hf(model, str(folder), config, model_args=dict(self.args), safe_serialization=True)
            return
        name_classes(model.network.config, self.labels)
        model.network.save_pretrained(folder)
        _write_view(folder, self.view)


class HuggingFace(nn.Module):
    """An image classifier of transformers that takes and gives plain tensors."""

    def __init__(self, network: Any):
        super().__init__()
        self.network: Any = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(pixel_values=images).logits  # type: ignore[no-any-return]


def _write_view(folder: Path, view: View) -> None:
    content = {
        "image_mean": view.mean, "image_std": view.std, "size": {"height": view.size, "width": view.size},
        "do_normalize": True, "do_resize": True, "do_rescale": True, "image_processor_type": "ViTImageProcessor",
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
