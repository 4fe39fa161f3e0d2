"""SPSA (Uesato et al., 2018): the gradient from random pairs of queries, for models whose own gradient may mislead.

Each pair asks the model at x + δd and x − δd, d a random sign for every value; the difference of the two losses times d
is on average the gradient (Spall, 1992). A known implementation asks at 2x + δd instead.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .attempt import Attempt

PAIRS = 32  # at a time


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """How far the true class is ahead of the best other one; an attack makes it negative."""
    true = logits.gather(-1, labels[..., None]).squeeze(-1)
    return true - logits.scatter(-1, labels[..., None], -torch.inf).amax(-1)


def estimate_gradient(
    loss: Callable[[Tensor], Tensor], image: Tensor, *, delta: float, samples: int, generator: torch.Generator
) -> Tensor:
    """Of `loss` (a batch of images to a number each) at one image, from `samples` queries: half as many pairs."""
    total = torch.zeros_like(image)
    pairs = max(1, samples // 2)
    for first in range(0, pairs, PAIRS):
        count = min(PAIRS, pairs - first)
        signs = torch.randint(0, 2, (count, *image.shape), generator=generator).mul_(2).sub_(1).to(image)
        above, below = loss(torch.cat([image + delta * signs, image - delta * signs])).chunk(2)
        total += torch.einsum("p,p...->...", (above - below) / (2 * delta), signs)
    return total / pairs


@torch.no_grad()
def spsa(attempt: Attempt, *, steps: int, samples: int = 128) -> Tensor:
    """Adam on the margin in steps of ε/4, with queries 0.01 away from the image; one that has fallen is left alone."""
    found = []
    for place, (image, label) in enumerate(zip(attempt.images, attempt.labels, strict=True)):
        generator = attempt.generator(place)

        def loss(batch: Tensor, label: Tensor = label) -> Tensor:
            return margin(attempt.model(batch), label.expand(len(batch)))

        change = torch.zeros_like(image).requires_grad_()
        adam = torch.optim.Adam([change], lr=attempt.eps / 4)
        for _step in range(steps):
            if loss((image + change).clamp(*attempt.bounds)[None])[0] < 0:
                break
            change.grad = estimate_gradient(loss, image + change, delta=0.01, samples=samples, generator=generator)
            adam.step()
            change.clamp_(-attempt.eps, attempt.eps)
            change.copy_((image + change).clamp(*attempt.bounds) - image)
        found.append(image + change)
    return torch.stack(found)
