"""Models that take images in [0, 1], so that noise and attacks are measured in pixel values."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..plumbing.seeds import words


class OnPixels(nn.Module):
    """Model that takes images in [0, 1] and normalises them itself. In evaluation mode."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        return self.model((images - self.mean) / self.std)  # type: ignore[no-any-return]

    def pixels(self, normalised: Tensor) -> Tensor:
        """Images in [0, 1] from normalised images."""
        return (normalised * self.std + self.mean).clamp(0, 1)


def gaussian_noise(images: Tensor, sigma: float, *, first: int = 0, seed: int = 0) -> Tensor:
    """Images plus Gaussian noise of standard deviation `sigma`, clipped to [0, 1].

    The noise of image i depends only on `seed` and `first + i`, so it is the same in every batch and for every model.
    """
    noise = torch.empty_like(images, device="cpu")
    for i, each in enumerate(noise):
        generator = torch.Generator().manual_seed(words("noise", seed, first + i)[0])
        each.normal_(generator=generator)
    return (images + sigma * noise.to(images.device)).clamp(0, 1)
