"""Loss of robust training: what the model must answer, and on which version of the images.

The target of an image is its label, or the teacher's answer to the clean image, and features inside the teacher.
The image may then be corrupted, be perturbed by gradient ascent on the loss, and lose blocks of its tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...adapt.blocks import Features
from ...training.precision import autocast
from ...vision.corruptions import CORRUPTIONS, corrupt
from ...vision.models.classifier import View
from .hardening_keys import Adversarial, CorruptedImages
from .recipe import ImageRecipe

Gap = Callable[[Tensor], Tensor]  # from logits to a loss


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target ‖ softmax(logits)), averaged over the batch, for probabilities `target`."""
    return F.kl_div(logits.float().log_softmax(-1), target, reduction="batchmean")


def distance(features: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Squared distance of features (B, …) from `target`, divided by its squared norm, averaged over the batch; the sum
    over places."""
    pairs = [(x.float().flatten(1), y.float().flatten(1)) for x, y in zip(features, target, strict=True)]
    return torch.stack([((x - y).square().sum(1) / y.square().sum(1).clamp(min=1e-12)).mean() for x, y in pairs]).sum()


def _entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits.float(), target, label_smoothing=smoothing)


class Answer(NamedTuple):
    """Output of a network for a batch."""

    logits: Tensor  # (B, classes)
    features: Sequence[Tensor] = ()

    def halves(self) -> "tuple[Answer, Answer]":
        (first, second), halves = self.logits.chunk(2), [each.chunk(2) for each in self.features]
        return Answer(first, [half[0] for half in halves]), Answer(second, [half[1] for half in halves])


@dataclass(frozen=True)
class Target:
    """What a batch should be answered with."""

    gap: Gap  # loss of the logits, which attacks increase
    features: Sequence[Tensor] = ()  # of the teacher
    weight: float = 0.0  # of the distance from them

    def loss(self, answer: Answer) -> Tensor:
        found = self.gap(answer.logits)
        return found + self.weight * distance(answer.features, self.features) if self.features else found


class Objective:
    """Loss of an image classifier on normalised images.

    Args:
        network: the network to train; attacks compute gradients through it.
        view: format of its images.
        teacher: network that takes images in [0, 1], whose answers are the targets. None: labels.
    """

    def __init__(self, recipe: ImageRecipe, network: nn.Module, view: View, teacher: nn.Module | None = None):
        self.recipe, self.network, self.teacher = recipe, network, teacher
        self.mean, self.std = (torch.tensor(each).reshape(-1, 1, 1) for each in (view.mean, view.std))
        self.removal = _removal(recipe, network)
        self.features: list[Features] = []  # of the network and of the teacher, if they are compared
        if teacher is not None and recipe.features is not None:
            self.features = [Features.of(each, view.num_classes, recipe.features.block) for each in (network, teacher)]

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Loss of a batch. Random numbers come from torch's global generator.

        Args:
            model: the network, possibly wrapped for distributed training.
            labels: class numbers or probabilities; ignored if there is a teacher.
            smoothing: label smoothing.
        """
        adversarial, shown = self.recipe.adversarial, self._corrupted(images)
        target = Target(partial(_entropy, target=labels, smoothing=smoothing))
        if self.teacher is not None:
            target = self._taught(images)
        if adversarial is None:
            return target.loss(self._answer(model, shown))
        if adversarial.loss == "trades":
            return self._trades(model, shown, target, adversarial)
        perturbed = self._ascend(shown, target.gap, adversarial)
        if not adversarial.clean:
            return target.loss(self._answer(model, perturbed))
        there, clean = self._answer(model, torch.cat([perturbed, images])).halves()
        return target.loss(there) + adversarial.clean * target.loss(clean)

    def _trades(self, model: nn.Module, shown: Tensor, target: Target, adversarial: Adversarial) -> Tensor:
        """Loss of TRADES (Zhang et al., ICML 2019)."""
        with torch.no_grad():
            own = self.network(shown).float().softmax(-1)
        perturbed = self._ascend(shown, partial(divergence, target=own), adversarial)
        clean, there = self._answer(model, torch.cat([shown, perturbed])).halves()
        return target.loss(clean) + adversarial.beta * divergence(there.logits, clean.logits.float().softmax(-1))

    def _answer(self, model: nn.Module, images: Tensor) -> Answer:
        """Answer of the trained network, without random blocks of tokens if the recipe removes them."""
        removed = nullcontext() if self.removal is None else self.removal(len(images))
        with removed, self._keeping(0) as features:
            return Answer(model(images), features)

    def _keeping(self, number: int) -> AbstractContextManager[list[Tensor]]:
        """Context that keeps the features of the network (0) or of the teacher (1)."""
        return self.features[number].kept() if self.features else nullcontext([])

    @torch.no_grad()
    def _taught(self, images: Tensor) -> Target:
        """The teacher's probabilities and features as target."""
        assert self.teacher is not None
        self.teacher.to(images.device)
        with autocast(self.recipe.training.precision, images.device), self._keeping(1) as features:
            logits = self.teacher(self._pixels(images))
        weight = self.recipe.features.weight if self.recipe.features else 0.0
        return Target(partial(divergence, target=logits.float().softmax(-1)), features, weight)

    def _pixels(self, images: Tensor) -> Tensor:
        """Images in [0, 1] from normalised images."""
        return (images * self.std.to(images) + self.mean.to(images)).clamp(0, 1)

    def _ascend(self, images: Tensor, gap: Gap, adversarial: Adversarial) -> Tensor:
        """Images within the budget on which `gap` is large, found by signed gradient ascent."""
        scale = self.std.to(images)  # one unit of a pixel is 1/std normalised units
        low, high = (-self.mean.to(images)) / scale, (1 - self.mean.to(images)) / scale
        reach, step = adversarial.eps / scale, adversarial.step_size / scale
        found = _inside(images + (2 * torch.rand_like(images) - 1) * reach, low, high)
        with _frozen(self.network):
            for _ in range(adversarial.steps):
                found.requires_grad_(True)
                (gradient,) = torch.autograd.grad(gap(self.network(found)), found)
                moved = found.detach() + step * gradient.sign()
                found = _inside(_inside(moved, images - reach, images + reach), low, high)
        return found.detach()

    def _corrupted(self, images: Tensor) -> Tensor:
        """A share of the images corrupted, each by a kind and a severity of its own."""
        given = self.recipe.corruptions
        if given is None or not given.share:
            return images
        mean, std = self.mean.to(images), self.std.to(images)
        chosen = (torch.rand(len(images)) < given.share).nonzero().flatten()
        changed = images.clone()
        changed[chosen] = (_mixed(self._pixels(images[chosen]), given).to(images) - mean) / std
        return changed


def _inside(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


@contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients of the parameters, as an attacker meets the model."""
    training = [each for each in network.modules() if each.training]
    wanted = [each for each in network.parameters() if each.requires_grad]
    network.eval()
    for each in wanted:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for module in training:
            module.training = True
        for each in wanted:
            each.requires_grad_(True)


def _mixed(pixels: Tensor, given: CorruptedImages) -> Tensor:
    names = given.kinds or list(CORRUPTIONS)
    kinds = torch.randint(len(names), (len(pixels),))
    severities = torch.randint(len(given.severities), (len(pixels),))
    seed = int(torch.randint(2**31, ()))
    done = pixels.clone()
    for kind, severity in sorted({(k, s) for k, s in zip(kinds.tolist(), severities.tolist(), strict=True)}):
        where = ((kinds == kind) & (severities == severity)).nonzero().flatten()
        done[where] = corrupt(pixels[where], names[kind], given.severities[severity], indices=where.tolist(), seed=seed)
    return done


def _removal(recipe: ImageRecipe, network: nn.Module) -> Any:
    """Function from a number of images to a context in which the network sees them without random blocks of tokens."""
    if recipe.token_removal is None:
        return None
    from ...vision.removal import random_removal

    return random_removal(network, patch=recipe.token_removal.patch, blocks=recipe.token_removal.blocks)
