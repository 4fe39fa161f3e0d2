"""Build a `Classifier` from a model name, or load it from a pretrained model or a finished run."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from ...adapt import notes, robustify
from ...adapt.choice import Choice
from ...adapt.models import attention_modules
from ...adapt.named import EXPECTED, ModelRef
from ...adapt.pretrained import open_classifier
from ...adapt.spec import Calibration
from ...adapt.statistics import copy_statistics
from ...errors import InputError, hint
from ...plumbing.hub import UNREACHABLE, hub_is_unreachable
from ...plumbing.layout import CARD, WEIGHTS
from . import names  # noqa: F401  (registers the models)
from .calibration import CalibrationImages
from .classifier import Classifier, HuggingFace, View
from .vit import read_model


def build_classifier(
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    init_from: str | None = None,
    num_classes: Callable[[], int],
    image_size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    change: Callable[[nn.Module, Calibration], object] | None = None,
) -> Classifier:
    """Classifier with random weights (`name`) or pretrained weights (`init_from`); pass one of the two.

    If a pretrained model has another number of classes, its last layer is replaced by one with random weights.
    `change` is called with the network, to put RPC-Attention into it, and a function that reads calibration images.
    Default of `image_size`, `mean` and `std`: the values of the model.
    """
    args = dict(options or {})
    classes = args.pop("num_classes", None) or num_classes()
    if not isinstance(classes, int) or classes < 1:
        raise InputError(f"num_classes is {classes!r}; expected a whole number from 1")
    depth = args.get("depth", 1)
    if not isinstance(depth, int) or depth < 1:
        raise InputError(f"depth is {depth!r}; expected a whole number from 1")
    if init_from is None:
        assert name is not None
        made = _timm(name, classes, args, image_size)
    else:
        made = _pretrained(ModelRef.of(init_from), classes, args, image_size)
    view = replace(
        made.view,
        size=image_size or made.view.size,
        mean=tuple(mean or made.view.mean),
        std=tuple(std or made.view.std),
    )
    if not len(view.mean) == len(view.std) == view.channels:
        raise InputError(f"data.mean and data.std have {len(view.mean)} and {len(view.std)} values; the model takes "
                         f"{view.channels} channels")  # fmt: skip
    card: Any = getattr(made.model, "pretrained_cfg", None)
    if isinstance(card, dict):
        card |= {"mean": view.mean, "std": view.std, "input_size": (view.channels, view.size, view.size)}
        if view.channels != 3:
            card["first_conv"] = None  # otherwise timm takes the saved weights for RGB weights and converts them
    if change is not None:
        change(made.network, partial(CalibrationImages, view))
    made = replace(made, view=view)
    _try(made)
    return made


def load_classifier(model: ModelRef | str) -> Classifier:
    """Classifier in evaluation mode, with RPC-Attention if the `ModelRef` asks for it."""
    ref = ModelRef.of(model)
    made = _pretrained(ref, None, {}, None)
    if ref.robustify is not None:
        ref.robustify.put_into(made.network, partial(CalibrationImages, made.view))
    _try(made)
    made.model.eval()
    return replace(made, name=ref.name)


def untrained_classifier(like: Classifier) -> nn.Module:
    """Copy of a classifier's network with new random weights, in evaluation mode. Statistics of token pursuit stay."""
    model: Any = like.model
    if isinstance(model, HuggingFace):
        made: nn.Module = HuggingFace(type(model.network)(model.network.config))
    else:
        args = {**like.args, "num_classes": like.view.num_classes}  # config.json may set num_classes as well
        made = timm.create_model(model.pretrained_cfg["architecture"], **args)
        if (choice := notes.read(model)) is not None:
            notes.write(made, Choice.from_json(choice, len(attention_modules(made))))
            robustify(made)
    copy_statistics(model, made)
    return made.to(next(model.parameters()).device).eval().requires_grad_(False)


def _pretrained(ref: ModelRef, classes: int | None, args: dict[str, Any], image_size: int | None) -> Classifier:
    if ref.library == "timm":
        return _timm(ref.place, classes, args, image_size, ref.weights or "hub")
    if ref.library == "hf" and not ref.is_timm:
        return _huggingface(ref.place, classes, args)
    return _folder(ref, classes, args, image_size)


@torch.no_grad()
def _try(made: Classifier) -> None:
    """Run the model on one image, so that options that do not fit together raise an error before training."""
    view = made.view
    try:
        shape = made.model.eval()(torch.zeros(1, view.channels, view.size, view.size)).shape
    except Exception as wrong:  # any error of the network
        raise InputError(
            f"the model takes no images of {view.size}×{view.size}: {' '.join(str(wrong).split())}"
        ) from wrong
    finally:
        made.model.train()
    if tuple(shape) != (1, view.num_classes):
        raise InputError(
            f"the model's output has shape {tuple(shape)}; expected (1, {view.num_classes}), one logit per class"
        )


def _timm(
    name: str, classes: int | None, args: dict[str, Any], image_size: int | None, weights: str | None = None
) -> Classifier:
    if not timm.is_model(name.partition(".")[0]):
        raise InputError(f"there is no model {name}; {hint(name, timm.list_models(), 'see timm.list_models()')}")
    what = f"the model {name} with options {args}"
    loading: dict[str, Any] = {"num_classes": classes}
    if weights == "hub":
        what, loading = f"timm's weights of {name}", {"pretrained": True}
        hub_is_unreachable()
    elif weights is not None:
        overlay = _local_weights(name, weights)
        loading = {"pretrained": True, "num_classes": overlay["num_classes"], "pretrained_cfg_overlay": overlay}
    create = partial(timm.create_model, name, **loading, **args)
    model = _sized(create, what, image_size, remote=weights == "hub")
    if notes.read(model) is not None:
        robustify(model)
    missing = _renew_classifier(model, classes)  # after loading all weights, or timm would not report missing ones
    args = getattr(model, "model_args", args)  # models of this package store their arguments, as JSON
    return replace(_described(model, args, image_size), missing=missing)


def _sized(make: Callable[..., Any], what: str, image_size: int | None, *, remote: bool = False) -> Any:
    """Create a model for images of this size; without `img_size` if the model has no such option."""
    try:
        try:
            return make(**({"img_size": image_size} if image_size else {}))
        except TypeError as wrong:
            if image_size is None or "img_size" not in str(wrong):
                raise
            return make()
    except InputError:
        raise
    except Exception as wrong:  # a wrong option, weights of another model, no network: any error of timm
        reason = UNREACHABLE if remote and hub_is_unreachable() else " ".join(str(wrong).split())[:500]
        raise InputError(f"{what} cannot be made: {reason}") from wrong


def _local_weights(name: str, weights: str) -> dict[str, Any]:
    path = Path(weights).expanduser()
    if path.is_dir():
        path = path / WEIGHTS
    if not path.exists():
        raise InputError(f"there are no weights at {path}; expected timm:{name}@FILE.safetensors, or the file's folder")
    if not path.is_file() or path.suffix != ".safetensors":
        raise InputError(
            f"the weights {weights} are not a safetensors file, and files of other formats are not opened, since they "
            "can hold code; save the state dict with safetensors.torch.save_file"
        )
    head = timm.get_pretrained_cfg_value(name, "classifier") or "head"
    try:
        with safe_open(path, "pt") as file:
            key = f"{head}.weight"
            classes = file.get_slice(key).get_shape()[0] if key in file.keys() else 0  # noqa: SIM118
    except SafetensorError as wrong:
        raise InputError(f"{path} cannot be read as safetensors: {wrong}") from wrong
    found = {"file": str(path), "num_classes": classes, "url": "", "hf_hub_id": None, "custom_load": False}
    card = path.with_name(CARD)  # config.json beside the weights, which may record RPC-Attention
    told = _json(card).get("pretrained_cfg") if card.is_file() else None
    return found | ({"notes": tuple(told.get("notes") or ())} if isinstance(told, dict) else {})


def _huggingface(folder: str, classes: int | None, args: dict[str, Any]) -> Classifier:
    from transformers import AutoModelForImageClassification

    if args:
        raise InputError(f"the model option {sorted(args)[0]} was given, but Hugging Face models take no options")
    network, labels, missing = open_classifier(folder, AutoModelForImageClassification, classes)
    path = Path(folder) / "preprocessor_config.json"
    told = _json(path) if path.is_file() else {}
    config = network.config
    channels = getattr(config, "num_channels", 3)
    mean, std = (_values(told.get(key), channels) for key in ("image_mean", "image_std"))
    view = View(config.image_size, channels, mean, std, config.num_labels, 1.0)
    return Classifier(HuggingFace(network), view, {}, labels, missing)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as wrong:  # not JSON, or not text
        raise InputError(f"{path} is not JSON: {wrong}") from wrong
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {content!r}; expected an object")
    return content


def _values(told: Any, channels: int) -> tuple[float, ...]:
    """Value of each channel from a config file; 0.5 for all channels if it does not have one per channel."""
    return tuple(told) if isinstance(told, list | tuple) and len(told) == channels else (0.5,) * channels


def _folder(ref: ModelRef, classes: int | None, args: dict[str, Any], image_size: int | None) -> Classifier:
    """Classifier from a folder written by `save_pretrained` or a finished run."""
    folder = ref.folder
    if not (folder / CARD).is_file():
        raise InputError(f"the model is {folder}; {EXPECTED}")
    card = _json(folder / CARD)
    if ref.is_transformers:
        return _huggingface(str(folder), classes, args)
    model = _sized(lambda **sized: read_model(folder, **args, **sized), f"the model of {folder}", image_size)
    missing = _renew_classifier(model, classes)
    if notes.read(model) is not None:
        robustify(model)
    labels = card.get("label_names") or []
    named = isinstance(labels, list) and len(labels) == model.num_classes
    made = _described(model, {**card.get("model_args", {}), **args}, image_size)
    return replace(made, labels=tuple(map(str, labels)) if named else None, missing=missing)


def _renew_classifier(model: Any, classes: int | None) -> tuple[str, ...]:
    """Give a timm model with another number of classes a new last layer; returns its name, if it was renewed."""
    if classes in (None, model.num_classes):
        return ()
    model.reset_classifier(classes)
    return (str(model.pretrained_cfg.get("classifier", "the last layer")),)


def _described(model: Any, args: dict[str, Any], image_size: int | None) -> Classifier:
    """Classifier of a timm model, with the format of its images from timm's data config."""
    told = timm.data.resolve_model_data_config(model)
    _, size, width = told["input_size"]
    channels = args.get("in_chans", told["input_size"][0])
    embed: Any = getattr(model, "patch_embed", None)
    if getattr(embed, "img_size", None):
        size, width = embed.img_size
        args = args | ({"img_size": image_size} if image_size else {})  # config.json must record it
    elif image_size is not None:
        size = width = image_size
    if size != width:
        raise InputError(f"the model takes images of {size}×{width}; expected square images")
    mean, std = (_values(told[key], channels) for key in ("mean", "std"))
    view = View(size, channels, mean, std, model.num_classes, told["crop_pct"], told["interpolation"])
    return Classifier(model, view, args)
