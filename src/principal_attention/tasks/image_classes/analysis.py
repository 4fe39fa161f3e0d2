"""Images for `principal analyze`."""

from collections.abc import Iterator, Sequence

from torch import nn

from ...analysis.inputs import Shown
from ...plumbing.seeds import seed_all
from ...vision.models.load import untrained_classifier
from .examples import Images
from .subject import ImageSubject


class ImageInputs:
    unit = "images"

    def __init__(self, subject: ImageSubject, images: Images, data: str, count: int):
        self.subject, self.images, self.data = subject, images, data
        self.name, self.network, self.robustify = subject.name, subject.network, subject.robustify
        self.examples = images.order[:count]

    def __len__(self) -> int:
        return len(self.examples)

    def fingerprint(self) -> str:
        return self.images.fingerprint()

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Shown]:
        for batch in self.images.batches(size, wanted, 0):
            kept = batch.first(max(0, len(self) - batch.number * size))
            seen = self.subject.normalised(kept.images.to(self.subject.on_pixels.mean.device))
            yield Shown(batch.number, kept.indices, {"pixels": seen})

    def show(self, network: nn.Module, batch: Shown) -> None:
        network(batch.given["pixels"])

    def untrained(self, seed: int, turn: int) -> nn.Module:
        seed_all("null", seed, turn)
        return untrained_classifier(self.subject.classifier)
