"""What can be measured of a model: each case takes a batch of images and says what the model makes of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..vision.attacks import ATTACKS
from ..vision.corruptions import Textures, corrupt
from .images import Batch
from .protocols import Protocol, attack_batch
from .subject import Subject

Columns = dict[str, list[Any]]
AUTOATTACK = 100 * 3 + 900 * 3 + 900 * 3 + 5000


@dataclass(frozen=True)
class Case:
    suite: str
    name: str
    n: int  # images
    measure: Callable[[Subject, Batch], Columns]
    pinned: Mapping[str, Any]  # what makes it this case and no other
    cost: float = 1.0  # forward passes an image, for the time left

    @property
    def description(self) -> dict[str, Any]:
        return {"suite": self.suite, "case": self.name, "n": self.n, **self.pinned}


def answers(logits: Tensor, labels: Tensor) -> Columns:
    """What the model said: its class, how many classes it held likelier than the true one, and how sure it was."""
    logits = logits.float()
    predicted = logits.argmax(-1)
    true = logits.gather(-1, labels[:, None])
    rank = torch.where(predicted == labels, 0, (logits > true).sum(-1).clamp(min=1))
    broken = ~logits.isfinite().all(-1)  # no answer is a wrong answer
    predicted, rank = predicted.masked_fill(broken, -1), rank.masked_fill(broken, logits.shape[-1])
    sure = logits.double().softmax(-1).amax(-1).nan_to_num(0.0)  # single precision knows no difference near 1
    return {
        "label": labels.tolist(),
        "predicted": predicted.tolist(),
        "rank": rank.tolist(),
        "confidence": [float(f"{x:.12g}") for x in sure.tolist()],
    }


@torch.inference_mode()
def _clean(subject: Subject, batch: Batch) -> Columns:
    return answers(subject.on_pixels(batch.images), batch.labels)


def clean_case(n: int) -> Case:
    return Case("clean", "clean", n, _clean, {})


def corruption_cases(
    names: Sequence[str], severities: Sequence[int], n: int, *, seed: int, textures: Textures | None
) -> list[Case]:
    def case(name: str, severity: int) -> Case:
        @torch.inference_mode()
        def measure(subject: Subject, batch: Batch) -> Columns:
            changed = corrupt(batch.images, name, severity, indices=batch.indices, seed=seed, frost=textures)
            return answers(subject.on_pixels(changed), batch.labels)

        pinned: dict[str, Any] = {"severity": severity, "seed": seed}
        if name == "frost":
            pinned["textures"] = "made" if textures is None else textures.fingerprint()
        return Case("corruptions", name, n, measure, pinned, cost=1.5)

    return [case(name, severity) for name in names for severity in severities]


def published_corruption_case(name: str, severity: int, n: int) -> Case:
    """On images that are corrupted already."""
    return Case("corruptions", name, n, _clean, {"severity": severity, "source": "published"})


def attack_case(
    name: str, n: int, *, eps: float, protocol: Protocol, gradients: str, steps: int | None, seed: int,
    source: Subject | None = None, **options: Any,
) -> Case:  # fmt: skip
    kind = ATTACKS[name]
    steps = kind.steps if steps is None or kind.steps is None else steps
    pinned: dict[str, Any] = {"eps": eps, "norm": kind.norm, "protocol": protocol.name, "gradients": gradients}
    pinned |= {"seed": seed} | ({"steps": steps} if steps is not None else {}) | options
    if source is not None:
        pinned |= {"source": source.name, "source_weights": source.fingerprint()}

    def measure(subject: Subject, batch: Batch) -> Columns:
        logits, size = attack_batch(
            name, subject, batch, eps=eps, protocol=protocol, gradients=gradients, steps=steps, seed=seed,
            source=source, **options,
        )  # fmt: skip
        return answers(logits, batch.labels) | {"size": [float(f"{x:.6g}") for x in size.tolist()]}

    passes = (1 if steps is None else steps) * (3 if kind.gradients else 1)
    cost = passes * options.get("targets", 1) * options.get("samples", 1)
    return Case("attacks", name, n, measure, pinned, cost=AUTOATTACK if name == "autoattack" else cost)


def check_names(given: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    """Of a comma-separated option; a name that is not known is answered with those that are."""
    if not given:
        raise InputError(f"no {what} was named; expected some of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}; expected one of {', '.join(known)}")
    return list(dict.fromkeys(given))
