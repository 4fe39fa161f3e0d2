"""Threats that `principal harden` fine-tunes an image classifier against, and what is measured before and after."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError
from ..kind import Threat

if TYPE_CHECKING:
    from ...evaluation.outcomes import Result
    from ...evaluation.suite import Record

NOISE = "gaussian_noise"
SEVERITY = "3"
SLOW = 100  # images that are certified, since one takes up to 666 forward passes


def _linf(recipe: Any) -> Mapping[str, Mapping[str, Any]]:
    attack = {"attacks": "pgd", "eps": str(recipe.adversarial.eps), "steps": 20}
    return {"clean": {}, "corruptions": {"corruptions": NOISE, "severities": SEVERITY}, "attacks": attack}


def _corruptions(recipe: Any) -> Mapping[str, Mapping[str, Any]]:
    return {"clean": {}, "corruptions": {"severities": SEVERITY}}


def _means(recipe: Any, results: Mapping[str, Sequence["Result"]]) -> list["Record"]:
    """Mean accuracy over the kinds of corruption that were trained on, and over the others, with paired differences.

    `results`: results by model, first those of the model before.
    """
    from ...evaluation.compare import on_same_examples
    from ...evaluation.results import COMPARED
    from ...plumbing.records import record
    from ..classes import right

    (before, first), (after, second) = results.items()
    trained = recipe.corruptions.kinds
    made = []
    for case, wanted in (("kinds trained on", True), ("kinds not trained on", False)):
        kept = [[right(each) for each in found if each.description["suite"] == "corruptions"
                 and (trained is None or each.description["case"] in trained) == wanted]
                for found in (first, second)]  # fmt: skip
        if not all(kept):
            continue
        scores = [np.mean(each, axis=0) for each in kept]
        told: dict[str, Any] = {"n": len(scores[0]), "seed": recipe.seed, "severity": int(SEVERITY), "task": "images"}
        made += [record(name, "corruptions", case, "mean_top1", float(score.mean()), **told)
                 for name, score in zip((before, after), scores, strict=True)]  # fmt: skip
        paired = on_same_examples(scores[1], scores[0])
        made.append(record(
            after, "corruptions", case, COMPARED, paired.difference, against=before, low=paired.low, high=paired.high,
            p=paired.p, **told,
        ))  # fmt: skip
    return made


def _patch(recipe: Any) -> Mapping[str, Mapping[str, Any]]:
    return {"clean": {}, "certificate": {"patch": str(recipe.token_removal.patch)}}


THREATS = {
    "linf": Threat(
        "every pixel changed by at most --eps",
        "harden/linf",
        _linf,
        {"eps": "adversarial.eps", "steps": "adversarial.steps", "loss": "adversarial.loss"},
    ),
    "corruptions": Threat(
        "noise, blur, weather and compression",
        "harden/corruptions",
        _corruptions,
        {"corruptions": "corruptions.kinds"},
        summary=_means,
    ),
    "patch": Threat(
        "a square of --patch pixels anywhere in the image, with a certificate",
        "harden/patch",
        _patch,
        {"patch": "token_removal.patch"},
        limits={"certificate": SLOW},
        batch_size=5,
    ),
}


def data_keys(source: str, split: str | None, holdout: int | None) -> dict[str, Any]:
    """Keys of `data` for a source: the split to train on, and the images to hold out.

    Default of `split`: train, else the only split. Default of `holdout`: the validation split if the source has one,
    else a fifth of the images.
    """
    from ...data.tables import VALIDATION
    from ...vision.data.sources import split_lengths

    lengths = split_lengths(source, () if split is None else (split,))
    if split is None:
        if "train" not in lengths and len(lengths) > 1:
            raise InputError(f"{source} has the splits {', '.join(lengths)}; name one to train on with --split")
        split = "train" if "train" in lengths else next(iter(lengths))
    elif split not in lengths:
        raise InputError(f"{source} has no split {split!r}; it has {', '.join(lengths)}")
    keys: dict[str, Any] = {"source": source, "train": split}
    if holdout is None and any(name in lengths and name != split for name in VALIDATION):
        return keys
    length = lengths[split]
    if holdout is None and length is None:
        raise InputError(f"the stream {source} has no known number of images; give --holdout")
    return keys | {"holdout": holdout if holdout is not None else max(1, (length or 0) // 5)}
