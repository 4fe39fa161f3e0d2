"""Published test sets as unpacked: ImageNet-A, -R and -O, and ImageNet-C."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torchvision import transforms

from ...data.tables import VALIDATION
from ...errors import InputError
from ...evaluation.outcomes import Columns
from ...evaluation.suite import Case
from ...vision.data.folders import class_folders
from ...vision.data.sources import Split, split_of
from ...vision.models.classifier import View
from ..classes import answers
from .examples import ImageBatch, Images
from .imagenet import SUBSETS, wnids
from .subject import ImageSubject

PUBLISHED_SIDE = 224  # side of ImageNet-C's images in pixels
NEGATIVES = "imagenet-o-negatives"  # case of the ImageNet images that ImageNet-O is compared with
SETS = {"imagenet-a": 7_500, "imagenet-r": 30_000, "imagenet-o": 2_000}  # number of images of each


def find_sets(folder: Path) -> dict[str, Path]:
    """Folders of the sets in `folder`, which may itself be one of them."""
    found = {name: folder / name for name in SETS if (folder / name).is_dir()}
    if not found and folder.name.lower() in SETS and folder.is_dir():
        found = {folder.name.lower(): folder}
    if not found:
        raise InputError(
            f"{folder} holds none of {', '.join(SETS)}; expected one of these folders as it unpacks, "
            f"{folder / 'imagenet-a'}/n01498041/IMAGE.jpg"
        )
    return found


def open_set(name: str, folder: Path, view: View) -> Images:
    """The images of a set, with the class numbers of ImageNet."""
    _check_imagenet(view)
    split = _folder(folder, name)
    known = {wnids()[number] for number in SUBSETS[name]}
    strange = sorted(set(split.classes or ()) - known)
    if strange:
        raise InputError(
            f"{folder} holds a folder {strange[0]!r}, which is not a class of {name}; expected folders named after its "
            f"200 classes, such as {min(known)}"
        )
    return Images(split, view, wnids())


def _check_imagenet(view: View) -> None:
    if view.num_classes != 1000:
        raise InputError(
            f"the model has {view.num_classes} classes; this set is for models with ImageNet's 1000 classes"
        )


def _folder(folder: Path, name: str) -> Split:
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; expected {name} as it unpacks")
    for split in ("train", *VALIDATION):
        if (folder / split).is_dir():
            raise InputError(f"{folder} holds a folder {split}; expected the class folders of {name}")
    return replace(split_of(class_folders(folder, ())["train"], str(folder)), name=name)


def set_case(name: str, n: int, limit: int | None = None) -> Case:
    """Case of a set: the model's answers, restricted to the 200 classes of the set."""
    return _cut_case(name, name, n, limit)


def negative_case(images: Images, limit: int | None) -> tuple[Images, Case]:
    """ImageNet images of ImageNet-O's classes, as negatives of its AUPR, and their case."""
    chosen = set(SUBSETS["imagenet-o"])
    subset = images.only(lambda label: label in chosen)
    if not len(subset):
        raise InputError("the data hold no images of ImageNet-O's 200 classes; expected ImageNet's validation images")
    return subset, _cut_case(NEGATIVES, "imagenet-o", min(len(subset), limit or len(subset)), limit)


def _cut_case(case: str, name: str, n: int, limit: int | None) -> Case:
    classes = torch.tensor(SUBSETS[name])
    place = torch.full((1000,), -1).scatter(0, classes, torch.arange(len(classes)))

    @torch.inference_mode()
    def measure(subject: ImageSubject, batch: ImageBatch) -> Columns:
        logits = subject.on_pixels(batch.images)[:, classes.to(batch.images.device)]
        return answers(logits, place.to(batch.labels.device)[batch.labels])

    return Case("ood", case, n, measure, {"classes": len(classes), "limit": limit})


def open_imagenet_c(folder: Path, names: Sequence[str], severities: Sequence[int], view: View) -> Any:
    """Yield (name, severity, images) of ImageNet-C: 224×224, cropped; resized only for models with larger input."""
    _check_imagenet(view)
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        example = folder / missing[0] / "1" / "n01440764" / "IMAGE.JPEG"
        raise InputError(f"{folder} holds no {missing[0]}; expected ImageNet-C as it unpacks, {example}")
    for name in names:
        for severity in severities:
            split = _folder(folder / name / str(severity), f"{name}/{severity} of ImageNet-C")
            images = Images(split, view, wnids())
            if view.size <= PUBLISHED_SIDE:  # otherwise resized by the model's transform
                crop = transforms.CenterCrop(view.size)
                images.examples.transform = transforms.Compose([crop, transforms.ToTensor()])
            yield name, severity, images
