"""`Classifier`: a network, the format of its input images, and how both are saved to a folder."""

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
    """Format of the images that a model takes, and its number of classes."""

    size: int  # height and width in pixels
    channels: int
    mean: tuple[float, ...]  # per channel, for normalisation
    std: tuple[float, ...]
    num_classes: int
    crop_pct: float = 0.875  # crop size divided by the size of the resized image
    interpolation: str = "bicubic"

    @property
    def mode(self) -> str:
        """Mode of PIL of the images."""
        return "L" if self.channels == 1 else "RGB"


@dataclass(frozen=True)
class Classifier:
    """Image classifier with the format of its images and its class names."""

    model: nn.Module  # from normalised images to logits
    view: View
    args: Mapping[str, Any]  # arguments of the timm model, written to config.json
    labels: tuple[str, ...] | None = None  # names of the classes; None if unknown
    missing: tuple[str, ...] = ()  # weights that are not in the file and were initialised at random
    name: str = ""  # name of the model in records, if it was loaded

    @property
    def network(self) -> nn.Module:
        """Model of timm or transformers without the wrapper that makes it take tensors; the input of `robustify`."""
        return self.model.network if isinstance(self.model, HuggingFace) else self.model

    def save(self, folder: Path, model: nn.Module | None = None) -> None:
        """Save weights and config.json to a folder. `model`: same network, other weights. Default: `self.model`."""
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
    """Image classifier of transformers that takes images and returns logits as tensors."""

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
