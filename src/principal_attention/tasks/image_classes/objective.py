"""Loss of robust training: what the model must answer, and on which version of the images.

The target of an image is its label, or the teacher's answer to the clean image. The image may then be corrupted, be
perturbed by gradient ascent on the loss, and lose blocks of its tokens inside the model.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...training.precision import autocast
from ...vision.corruptions import CORRUPTIONS, corrupt
from ...vision.models.classifier import View
from .hardening_keys import Adversarial, CorruptedImages
from .recipe import ImageRecipe

Gap = Callable[[Tensor], Tensor]  # from logits to a loss


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target ‖ softmax(logits)), averaged over the batch, for probabilities `target`."""
    return F.kl_div(logits.float().log_softmax(-1), target, reduction="batchmean")


def _entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits.float(), target, label_smoothing=smoothing)


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

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Loss of a batch. Random numbers come from torch's global generator.

        Args:
            model: the network, possibly wrapped for distributed training.
            labels: class numbers or probabilities; ignored if there is a teacher.
            smoothing: label smoothing.
        """
        adversarial, shown = self.recipe.adversarial, self._corrupted(images)
        if self.teacher is None:
            gap: Gap = partial(_entropy, target=labels, smoothing=smoothing)
        else:
            gap = partial(divergence, target=self._answers(images))
        if adversarial is None:
            with self._without_blocks(len(images)):
                return gap(model(shown))
        if adversarial.loss == "trades":
            return self._trades(model, shown, gap, adversarial)
        perturbed = self._ascend(shown, gap, adversarial)
        if not adversarial.clean:
            with self._without_blocks(len(images)):
                return gap(model(perturbed))
        with self._without_blocks(2 * len(images)):
            there, clean = model(torch.cat([perturbed, images])).chunk(2)
        return gap(there) + adversarial.clean * gap(clean)

    def _trades(self, model: nn.Module, shown: Tensor, gap: Gap, adversarial: Adversarial) -> Tensor:
        """Loss of TRADES (Zhang et al., ICML 2019)."""
        with torch.no_grad():
            own = self.network(shown).float().softmax(-1)
        perturbed = self._ascend(shown, partial(divergence, target=own), adversarial)
        with self._without_blocks(2 * len(shown)):
            clean, there = model(torch.cat([shown, perturbed])).chunk(2)
        return gap(clean) + adversarial.beta * divergence(there, clean.float().softmax(-1))

    @torch.no_grad()
    def _answers(self, images: Tensor) -> Tensor:
        """The teacher's probabilities."""
        assert self.teacher is not None
        self.teacher.to(images.device)
        with autocast(self.recipe.training.precision, images.device):
            logits: Tensor = self.teacher(self._pixels(images))
        return logits.float().softmax(-1)

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

    def _without_blocks(self, count: int) -> AbstractContextManager[object]:
        return nullcontext() if self.removal is None else self.removal(count)


def _inside(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


@contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients of the parameters, as an attacker meets the model."""
    training = network.training
    wanted = [each for each in network.parameters() if each.requires_grad]
    network.eval()
    for each in wanted:
        each.requires_grad_(False)
    try:
        yield
    finally:
        network.train(training)
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
