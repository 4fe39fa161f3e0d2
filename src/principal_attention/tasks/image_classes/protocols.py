"""Protocols of attacks. Numbers of different protocols cannot be compared, so every record names its protocol.

pixel     Images in [0, 1], normalisation inside the model, true labels, attacked images clipped to [0, 1]. An image
          that is misclassified before the attack counts as wrong and is not attacked.
authors   The protocol of the paper's authors: the budget is in normalised units (ε = 6/255 is about 1.35/255 in
          pixels), nothing is clipped, attacks move away from the model's own predictions, PGD takes steps of 0.15·ε.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...pursuit import surrogate
from ...vision.attacks import ATTACKS, attack, size_of
from .examples import ImageBatch
from .subject import ImageSubject

GRADIENTS = ("own", *surrogate.KINDS, "transfer")


@dataclass(frozen=True)
class AttackProtocol:
    name: str
    eps: tuple[float, ...]  # default budgets of ℓ∞ attacks
    fixed: dict[str, dict[str, Any]] = field(default_factory=dict)  # options fixed by the protocol: attack -> options

    def budgets(self, name: str, given: Mapping[str, tuple[float, ...]]) -> tuple[float, ...]:
        """Budgets of an attack: those given for its norm, else the protocol's, else the attack's default."""
        fixed = self.fixed.get(name, {}).get("eps")
        norm, own = ATTACKS[name].norm, ATTACKS[name].eps
        return given.get(norm) or ((fixed,) if fixed else self.eps if norm == "linf" else (own,))


PROTOCOLS = {
    "pixel": AttackProtocol("pixel", (1 / 255,)),
    "authors": AttackProtocol(
        "authors",
        tuple(i / 255 for i in range(1, 7)),
        {"pgd": {"step": 0.15}, "spsa": {"eps": 0.1}, "noise": {"eps": 0.3}, "sld": {"eps": 10.0}},
    ),
}


class Surrogate(nn.Module):
    """The model with its own outputs and the gradients of `surrogate_gradients`."""

    def __init__(self, model: nn.Module, kind: str):
        super().__init__()
        self.model, self.kind = model, kind
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and images.requires_grad):
            return self.model(images)  # type: ignore[no-any-return]
        with surrogate.surrogate_gradients(self.kind):
            guess: Tensor = self.model(images)
        if self.kind == "straight":  # `straight` changes the backward pass only
            return guess
        with torch.no_grad():
            truth = self.model(images)
        return guess + (truth - guess).detach()


def attack_batch(
    name: str,
    subject: ImageSubject,
    batch: ImageBatch,
    *,
    eps: float,
    protocol: AttackProtocol,
    gradients: str,
    source: ImageSubject | None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The model's logits on the attacked images, and the norm of each image's perturbation."""
    options = {key: x for key, x in {**options, **protocol.fixed.get(name, {})}.items() if key != "eps"}
    if ATTACKS[name].steps is None:
        options.pop("steps", None)
    if gradients == "transfer" and source is None:
        raise InputError("transferred attacks need a source model: name it with --source")
    maker = source if source is not None and gradients == "transfer" else subject
    if protocol.name == "authors":
        model, judge = maker.network, subject.network
        images = subject.normalised(batch.images)
        with torch.inference_mode():
            labels = judge(images).argmax(-1).clone()
        bounds = (-math.inf, math.inf)
        if name == "cw":  # the authors' code clips the normalised images to [0, 1] before cw
            images, bounds = images.clamp(0, 1), (0.0, 1.0)
        chosen = torch.arange(len(labels))
    else:
        model, judge = maker.on_pixels, subject.on_pixels
        images, labels, bounds = batch.images, batch.labels, (0.0, 1.0)
        with torch.inference_mode():
            chosen = (judge(images).argmax(-1) == labels).nonzero().flatten()
    changed = images.clone()
    if len(chosen):
        target = Surrogate(model, gradients) if gradients in surrogate.KINDS else model
        changed[chosen] = attack(
            name, target, images[chosen], labels[chosen], eps=eps, bounds=bounds,
            indices=[batch.indices[i] for i in chosen.tolist()], **options,
        )  # fmt: skip
    with torch.inference_mode():
        return judge(changed), size_of(changed - images, ATTACKS[name].norm)


def budget(eps: float) -> str:
    """A budget as text: multiples of 0.25/255 as fractions (1/255, not 0.00392157), others as decimals."""
    quarters = eps * 255 * 4
    if abs(quarters - round(quarters)) > 1e-6 or not 1 <= round(quarters) < 256 or (quarters % 4 and quarters > 16):
        return f"{eps:g}"
    return f"{round(quarters) / 4:g}/255"


def in_words(each: Mapping[str, Any]) -> str:
    """The setting of an attack's record as text."""
    norm = {"linf": "", "l2": " (ℓ2)", "l1": " (ℓ1)"}[each["norm"]]
    words = [f"ε = {budget(each['eps'])}{norm}"]
    if "steps" in each:
        words.append(f"{each['steps']} {'queries' if each['case'] == 'square' else 'steps'}")
    words += [f"{each[key]} {key}" for key in ("targets", "samples") if key in each]
    if each["gradients"] != "own":
        words.append(f"{each['gradients']} gradients" if each["gradients"] != "transfer" else f"from {each['source']}")
    return ", ".join([*words, each["protocol"]])
