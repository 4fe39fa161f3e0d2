"""SPSA (Uesato et al., 2018): attack with gradients estimated from queries, for models with misleading gradients.

Each pair of queries evaluates the loss at x + δd and x − δd, where d has a random sign for every value. The difference
of the two losses, divided by 2δ, times d is an estimate of the gradient (Spall, 1992). A known implementation evaluates
at 2x + δd instead.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .attempt import Attempt

PAIRS = 32  # pairs of queries per batch


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Logit of the true class minus the largest other logit; negative for a misclassified image."""
    true = logits.gather(-1, labels[..., None]).squeeze(-1)
    return true - logits.scatter(-1, labels[..., None], -torch.inf).amax(-1)


def estimate_gradient(
    loss: Callable[[Tensor], Tensor], image: Tensor, *, delta: float, samples: int, generator: torch.Generator
) -> Tensor:
    """Estimated gradient of `loss`, a function from a batch of images to one number each, at one image.

    Args:
        delta: distance δ of the queries from the image.
        samples: number of queries, two per pair; at least one pair is used.
    """
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
    """Minimise the margin with Adam, learning rate ε/4 and δ = 0.01; stops for an image once it is misclassified.

    `samples`: queries per gradient estimate.
    """
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
