"""A classifier from a name, a pretrained model or a finished run: the network, and the images it wants to see."""

import difflib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import timm
from safetensors import SafetensorError, safe_open
from timm.models import save_for_hf
from torch import Tensor, nn

from ...adapt import notes, robustify
from ...errors import InputError
from ...pursuit import Pursuit
from . import names  # registers them
from .vit import CARD, read_model

assert names.NAMES


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

    def save(self, folder: Path, model: nn.Module | None = None) -> None:
        """Weights and card into a folder, atomically; `model` may hold other weights of the same network."""
        model = self.model if model is None else model
        partial = folder / ".model.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            if isinstance(model, HuggingFace):
                model.network.save_pretrained(partial)
                _write_view(partial, self.view)
            else:
                save_for_hf(model, str(partial), model_args=dict(self.args), safe_serialization=True)
            for file in sorted(partial.iterdir(), key=lambda file: file.name == CARD):  # the card last
                os.replace(file, folder / file.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


class HuggingFace(nn.Module):
    """An image classifier of transformers that takes and gives plain tensors."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(pixel_values=images).logits  # type: ignore[no-any-return]


def build_classifier(
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    init_from: str | None = None,
    num_classes: Callable[[], int],
    image_size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    rpc: Mapping[str, Any] | None = None,
) -> Classifier:
    """Either `name` (from scratch) or `init_from` (pretrained); `rpc` is preset, iterations, lam, layers and form.

    A pretrained model whose number of classes is another one keeps its weights and gets a new, random last layer.
    """
    args = dict(options or {})
    if image_size is not None:
        args.setdefault("img_size", image_size)
    classes = int(args.pop("num_classes", 0)) or num_classes()
    if init_from is None:
        assert name is not None
        made = _timm(name, classes, args)
    elif init_from.startswith("timm:"):
        network, _, weights = init_from.removeprefix("timm:").partition("@")
        made = _timm(network, classes, args, weights=weights or "hub")
    elif init_from.startswith("hf:"):
        made = _huggingface(init_from.removeprefix("hf:"), classes, args)
    else:
        made = _run(Path(init_from).expanduser(), classes, args)
    view = replace(made.view, mean=tuple(mean or made.view.mean), std=tuple(std or made.view.std))
    if not len(view.mean) == len(view.std) == view.channels:
        raise InputError(f"data.mean and data.std have {len(view.mean)} and {len(view.std)} values; the model takes "
                         f"{view.channels} channels")  # fmt: skip
    if isinstance(getattr(made.model, "pretrained_cfg", None), dict):
        made.model.pretrained_cfg |= {"mean": view.mean, "std": view.std}  # type: ignore[operator]
    if rpc is not None:
        harden(made.model, **rpc)
    return replace(made, view=view)


def harden(model: nn.Module, *, preset: str, iterations: int, lam: float, layers: Any, form: str) -> None:
    """`robustify` with plain values."""
    network = model.network if isinstance(model, HuggingFace) else model
    robustify(network, pursuit=Pursuit(iterations, lam, preset), layers=layers, form=form)  # type: ignore[type-var]


def _timm(name: str, classes: int, args: dict[str, Any], weights: str | None = None) -> Classifier:
    if not timm.is_model(name.partition(".")[0]):
        close = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.4)
        raise InputError(
            f"there is no model {name}; " + (f"did you mean {close[0]}?" if close else "see timm.list_models()")
        )
    loading: dict[str, Any] = {}
    if weights == "hub":
        loading = {"pretrained": True}
    elif weights is not None:
        loading = {"pretrained": True, "pretrained_cfg_overlay": _local_weights(name, weights)}
    try:
        model = timm.create_model(name, num_classes=classes, **loading, **args)
    except InputError:
        raise
    except Exception as wrong:  # a wrong option, a size that does not divide, no network: timm's own words
        what = f"timm's weights of {name}" if weights == "hub" else f"the model {name} with options {args}"
        raise InputError(f"{what} cannot be made: {' '.join(str(wrong).split())}") from wrong
    args = getattr(model, "model_args", args)  # our own models have them as JSON
    return Classifier(model, _view(model, classes), args)


def _local_weights(name: str, weights: str) -> dict[str, Any]:
    path = Path(weights).expanduser()
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file() or path.suffix != ".safetensors":
        raise InputError(f"the weights {weights} are not there as safetensors; expected timm:{name}@FILE.safetensors")
    head = timm.get_pretrained_cfg_value(name, "classifier") or "head"
    try:
        with safe_open(path, "pt") as file:
            key = f"{head}.weight"
            classes = file.get_slice(key).get_shape()[0] if key in file.keys() else 0  # noqa: SIM118
    except SafetensorError as wrong:
        raise InputError(f"{path} cannot be read as safetensors: {wrong}") from wrong
    return {"file": str(path), "num_classes": classes, "url": "", "hf_hub_id": None, "custom_load": False}


def _huggingface(folder: str, classes: int, args: dict[str, Any]) -> Classifier:
    from transformers import AutoModelForImageClassification

    if args:
        raise InputError(f"a Hugging Face model takes no options here, but {sorted(args)[0]} was given")
    try:
        network = AutoModelForImageClassification.from_pretrained(
            folder, num_labels=classes, ignore_mismatched_sizes=True, use_safetensors=True
        )
    except Exception as wrong:  # the hub's, the file system's and the format's own words
        raise InputError(f"hf:{folder} cannot be opened: {str(wrong).strip().splitlines()[0]}") from wrong
    path = Path(folder) / "preprocessor_config.json"
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    config = network.config
    channels = getattr(config, "num_channels", 3)
    mean, std = (tuple(told.get(key) or (0.5,) * channels) for key in ("image_mean", "image_std"))
    return Classifier(HuggingFace(network), View(config.image_size, channels, mean, std, classes, 1.0), {})


def _write_view(folder: Path, view: View) -> None:
    content = {
        "image_mean": view.mean, "image_std": view.std, "size": {"height": view.size, "width": view.size},
        "do_normalize": True, "do_resize": True, "do_rescale": True, "image_processor_type": "ViTImageProcessor",
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def _run(folder: Path, classes: int, args: dict[str, Any]) -> Classifier:
    if not (folder / CARD).is_file():
        raise InputError(
            f"init_from is {folder}; expected timm:NAME@weights, hf:FOLDER or the folder of a finished run"
        )
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    if "architecture" not in card:
        return _huggingface(str(folder), classes, args)
    model = read_model(folder, num_classes=classes, **args)
    if notes.read(model) is not None:
        robustify(model)
    args = {**card.get("model_args", {}), **args}
    return Classifier(model, _view(model, classes), args)


def _view(model: Any, classes: int) -> View:
    told = timm.data.resolve_model_data_config(model)
    channels, size, width = told["input_size"]
    embed: Any = getattr(model, "patch_embed", None)
    if getattr(embed, "img_size", None):
        size, width = embed.img_size  # the options may have changed it
    if size != width:
        raise InputError(f"the model takes images of {size}×{width}; expected a square")
    return View(
        size, channels, tuple(told["mean"]), tuple(told["std"]), classes, told["crop_pct"], told["interpolation"]
    )
