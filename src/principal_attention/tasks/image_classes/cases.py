"""Cases of the image suites: clean, corrupted and attacked images."""

from collections.abc import Sequence
from typing import Any

import torch

from ...evaluation.outcomes import Columns
from ...evaluation.suite import Case
from ...vision.attacks import ATTACKS
from ...vision.corruptions import Textures, corrupt
from ..classes import answers
from .examples import ImageBatch
from .protocols import AttackProtocol, attack_batch
from .subject import ImageSubject

AUTOATTACK = 100 * 3 + 900 * 3 + 900 * 3 + 5000  # forward passes per image, at most


@torch.inference_mode()
def _clean(subject: ImageSubject, batch: ImageBatch) -> Columns:
    return answers(subject.on_pixels(batch.images), batch.labels)


def clean_case(n: int) -> Case:
    return Case("clean", "clean", n, _clean)


def corruption_cases(
    names: Sequence[str], severities: Sequence[int], n: int, *, seed: int, textures: Textures | None
) -> list[Case]:
    def case(name: str, severity: int) -> Case:
        @torch.inference_mode()
        def measure(subject: ImageSubject, batch: ImageBatch) -> Columns:
            changed = corrupt(batch.images, name, severity, indices=batch.indices, seed=seed, frost=textures)
            return answers(subject.on_pixels(changed), batch.labels)

        pinned: dict[str, Any] = {"severity": severity, "seed": seed}
        if name == "frost":
            pinned["textures"] = "made" if textures is None else textures.fingerprint()
        return Case("corruptions", name, n, measure, pinned, cost=1.5)

    return [case(name, severity) for name in names for severity in severities]


def published_corruption_case(name: str, severity: int, n: int) -> Case:
    """Case of published images, which are already corrupted."""
    return Case("corruptions", name, n, _clean, {"severity": severity, "source": "published"})


def attack_case(
    name: str, n: int, *, eps: float, protocol: AttackProtocol, gradients: str, steps: int | None, seed: int,
    source: ImageSubject | None = None, **options: Any,
) -> Case:  # fmt: skip
    kind = ATTACKS[name]
    steps = kind.steps if steps is None or kind.steps is None else steps
    pinned: dict[str, Any] = {"eps": eps, "norm": kind.norm, "protocol": protocol.name, "gradients": gradients}
    pinned |= {"seed": seed} | ({"steps": steps} if steps is not None else {}) | options
    if source is not None:
        pinned |= {"source": source.name, "source_weights": source.fingerprint()}

    def measure(subject: ImageSubject, batch: ImageBatch) -> Columns:
        logits, size = attack_batch(
            name, subject, batch, eps=eps, protocol=protocol, gradients=gradients, steps=steps, seed=seed,
            source=source, **options,
        )  # fmt: skip
        return answers(logits, batch.labels) | {"size": [float(f"{x:.6g}") for x in size.tolist()]}

    passes = (1 if steps is None else steps) * (3 if kind.gradients else 1)
    cost = passes * options.get("targets", 1) * options.get("samples", 1)
    return Case("attacks", name, n, measure, pinned, cost=AUTOATTACK if name == "autoattack" else cost)
