import pytest
import torch

from principal_attention.analysis.heads import Heads
from principal_attention.kernel_pca import gram_spectrum, theorem_values

N, WIDTH = 60, 12
SCALE = WIDTH**-0.5


@pytest.fixture
def heads(make):
    """heads(kind): two heads on three images whose values are Theorem 1's, Gaussian, or half of the columns each."""

    def build(kind: str, *, size: float = 1.0, shape=(3, 2, N, WIDTH), seed: int = 0) -> Heads:
        q, k, noise = (size * t for t in make(*shape, count=3, seed=seed))
        _, exact = theorem_values(gram_spectrum(k, shape[-1] ** -0.5), shape[-1])
        half = torch.where(torch.arange(shape[-1]) < shape[-1] // 2, exact, noise * exact.norm() / noise.norm())
        v = {"exact": exact, "random": noise, "half": half}[kind]
        out = (q @ k.mT * shape[-1] ** -0.5).softmax(-1) @ v
        return Heads(0, q, k, v, out, shape[-1] ** -0.5)

    return build
