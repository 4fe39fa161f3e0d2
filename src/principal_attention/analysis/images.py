"""Images, as they are shown to a model whose heads are looked at."""

from collections.abc import Iterator, Sequence

from torch import nn

from ..evaluation.images import Images
from ..evaluation.subject import Subject
from ..plumbing.seeds import seed_all
from ..vision.models.load import untrained_classifier
from .inputs import Batch


class ImageInputs:
    unit = "images"

    def __init__(self, subject: Subject, images: Images, data: str, count: int):
        self.subject, self.images, self.data = subject, images, data
        self.name, self.network = subject.name, subject.network
        self.examples = images.order[:count]

    def __len__(self) -> int:
        return len(self.examples)

    def fingerprint(self) -> str:
        return self.images.fingerprint()

    def batches(self, size: int, wanted: Sequence[int]) -> Iterator[Batch]:
        for batch in self.images.batches(size, wanted, 0):
            kept = batch.first(max(0, len(self) - batch.number * size))
            seen = self.subject.normalised(kept.images.to(self.subject.on_pixels.mean.device))
            yield Batch(batch.number, kept.indices, {"pixels": seen})

    def show(self, network: nn.Module, batch: Batch) -> None:
        network(batch.given["pixels"])

    def untrained(self, seed: int, turn: int) -> nn.Module:
        seed_all("null", seed, turn)
        return untrained_classifier(self.subject.classifier)
