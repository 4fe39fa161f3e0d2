"""Cases of the patch suite: one square of each image is replaced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...evaluation.outcomes import Columns
from ...evaluation.suite import Case
from ...plumbing.seeds import words
from ...vision.attacks.garbage import GARBAGE, garbage_patches, worst_of
from ...vision.attacks.patches import STARTS, Objective, Start, attack_patches
from ...vision.attacks.places import fixed_place, random_places
from ..classes import answers
from .examples import ImageBatch, Images
from .subject import ImageSubject

CASES = {
    "pgd": "gradients of the model itself",
    "evade": "gradients of the model without its gates, minus the gates' excess; for models with token pursuit",
    "transfer": "patches made on --source",
    "universal": "one patch for all images, learnt on --universal-data",
    "garbage": "noise, stripes and a piece of another image; no gradients",
}
BLACK_BOX = ("transfer", "universal", "garbage")  # cases without gradients at the attacked image


@dataclass(frozen=True)
class Square:
    """Side of the patch, and its places in each image, which are the same for every model."""

    size: int
    placement: str  # random, fixed, or worst: the worst of several random places
    places: int  # number of candidate places
    corner: tuple[int, int] | None  # row and column of a fixed place
    seed: int

    @property
    def pinned(self) -> dict[str, Any]:
        more: dict[str, Any] = {"places": self.places} if self.placement == "worst" else {}
        if self.corner is not None:
            more["corner"] = ",".join(map(str, self.corner))
        return {"patch": self.size, "placement": self.placement, "seed": self.seed, **more}

    def corners(self, images: Tensor, indices: Sequence[int]) -> Tensor:
        """Candidate places (B, places, 2) of images with these indices."""
        height, width = images.shape[-2:]
        if self.corner is not None:
            found = fixed_place(self.size, height, width, self.corner, images=len(images))
        else:
            found = random_places(self.size, height, width, indices=indices, seed=self.seed, count=self.places)
        return found.to(images.device)


@dataclass(frozen=True)
class Try:
    """Patched images of one batch, and for each image what was tried."""

    images: Tensor
    corners: Tensor  # (B, 2)
    made: list[str]  # start or kind of the patch
    gradient: Tensor | None = None  # norm of the first gradient


def attacked(subject: ImageSubject, batch: ImageBatch, make: Callable[[Tensor, Tensor, list[int]], Try]) -> Columns:
    """Answers on patched images. An image that is misclassified without a patch counts as wrong and is not attacked.

    Further columns: `made`: start or kind of the patch, "" if not attacked; `row`, `column`: its upper left pixel;
    `gradient`: norm of the first gradient; −1 where there is none.
    """
    with torch.inference_mode():
        plain = answers(subject.on_pixels(batch.images), batch.labels)
    chosen = [i for i, (a, b) in enumerate(zip(plain["predicted"], plain["label"], strict=True)) if a == b]
    changed = batch.images.clone()
    count = len(batch.indices)
    made, corners, gradient = [""] * count, [[-1, -1]] * count, [-1.0] * count
    if chosen:
        indices = [batch.indices[i] for i in chosen]
        found = make(batch.images[chosen], batch.labels[chosen], indices)
        changed[chosen] = found.images
        for place, i in enumerate(chosen):
            made[i], corners[i] = found.made[place], found.corners[place].tolist()
            if found.gradient is not None:
                gradient[i] = float(f"{found.gradient[place].nan_to_num(0.0, 0.0, 0.0).item():.6g}")
    with torch.inference_mode():
        columns = answers(subject.on_pixels(changed), batch.labels)
    places = {"row": [row for row, _ in corners], "column": [column for _, column in corners]}
    return columns | {"made": made, **places, "gradient": gradient}


def gradient_case(
    name: str, n: int, square: Square, *, steps: int, restarts: int, start: Start,
    source: ImageSubject | None = None, objective: Callable[[ImageSubject], Objective] | None = None, **more: Any,
) -> Case:  # fmt: skip
    """Case `pgd`, `transfer` or `evade`."""
    pinned = {**square.pinned, "steps": steps, "restarts": restarts, "start": start, **more}
    if source is not None:
        pinned |= {"source": source.name, "source_weights": source.fingerprint()}

    def measure(subject: ImageSubject, batch: ImageBatch) -> Columns:
        def make(images: Tensor, labels: Tensor, indices: list[int]) -> Try:
            found = attack_patches(
                (source or subject).on_pixels, images, labels, square.corners(images, indices), size=square.size,
                steps=steps, restarts=restarts, start=start, indices=indices, seed=square.seed,
                objective=objective(subject) if objective is not None else None, leave=source is None,
            )  # fmt: skip
            return Try(found.images, found.corners, found.start, found.gradient)

        return attacked(subject, batch, make)

    return Case("patches", name, n, measure, pinned, cost=3.0 * steps * restarts * len(STARTS[start]))


def garbage_case(n: int, square: Square, *, draws: int, images: Images) -> Case:
    """Each kind `draws` times at each place; an image survives if it survives all of them."""

    def measure(subject: ImageSubject, batch: ImageBatch) -> Columns:
        def make(found: Tensor, labels: Tensor, indices: list[int]) -> Try:
            others = torch.stack([_other(images, index, square.seed) for index in indices]).to(found)
            candidates = [
                (kind, garbage_patches(kind, found, others, square.size, indices=indices, seed=square.seed, draw=draw))
                for draw in range(draws)
                for kind in GARBAGE
            ]
            corners = square.corners(found, indices)
            changed, kinds, at = worst_of(subject.on_pixels, found, labels, corners, candidates)
            return Try(changed, at, kinds)

        return attacked(subject, batch, make)

    cost = float(len(GARBAGE) * draws * square.places)
    return Case("patches", "garbage", n, measure, square.pinned | {"draws": draws}, cost=cost)


def universal_case(n: int, square: Square, *, patch: Callable[[ImageSubject], Tensor], **pinned: Any) -> Case:
    """One patch for all images. `patch(subject)`: the patch (C, size, size)."""

    def measure(subject: ImageSubject, batch: ImageBatch) -> Columns:
        learnt = patch(subject)

        def make(images: Tensor, labels: Tensor, indices: list[int]) -> Try:
            candidates = [("universal", learnt.to(images).expand(len(images), -1, -1, -1))]
            corners = square.corners(images, indices)
            changed, kinds, at = worst_of(subject.on_pixels, images, labels, corners, candidates)
            return Try(changed, at, kinds)

        return attacked(subject, batch, make)

    return Case("patches", "universal", n, measure, square.pinned | pinned, cost=2.0 + square.places)


def _other(images: Images, index: int, seed: int) -> Tensor:
    """Image of another class, chosen by the seed and the image's index; of any class if there is no other."""
    tried = [word % len(images.given) for word in words("patch", seed, index, count=16)]
    other = next((i for i in tried if images.given[i] != images.given[index]), tried[0])
    found = images.examples[other, other]
    if isinstance(found, Exception):
        raise found
    return found[0]
