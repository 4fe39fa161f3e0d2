"""`MaskedCertifier`: answers that no small patch can change, by double masking (PatchCleanser) with removed tokens.

Double masking (Xiang, Mahloujifar and Mittal, USENIX Security 2022) asks the model about the image without each block
of tokens, and without pairs of blocks. One block covers all of an attacker's patch, wherever it is, so the answers
without that block are those of the clean image. The paper paints blocks grey; here their tokens leave the sequence.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InputError
from .masks import PER_SIDE, block_masks
from .soundness import check_removal, logits_of
from .tokens import keeping, token_grid

FIRST = 1  # pairs of masks tried first; doubled as long as none is wrong

Pair = tuple[int, int, int]  # image, and two masks in ascending order; twice the same for a single mask


class CertifiedAnswers(NamedTuple):
    answers: Tensor  # (B,) class numbers
    certified: Tensor  # (B,) bool: no patch of this size anywhere in the image changes the answer


class MaskedCertifier(nn.Module):
    """Image classifier defended against one square patch, which also says whether its answer is certified.

    The answer is the one that all masks give. If they differ, it is that of a mask in the minority whose answer stays
    the same with every second mask, else that of most masks (the smallest class number among equals). It is certified
    if all masks and all pairs of masks give it: then no contents of a square of `patch` pixels, at any place, change
    the answer.

    A certificate compares answers to the same tokens, computed now and on the attacked image, where they may be in a
    batch of another shape and be rounded differently. For an answer not to hang on that, a certificate demands that in
    each of these answers the largest logit exceeds the second by `tolerance` times the largest absolute logit.

    Computes without gradients. The model is put into evaluation mode and must stay in it.

    Args:
        model: timm's VisionTransformer, ViT or DeiT of transformers, or a module around one of them, with
            non-overlapping patches. Refused with `InputError` if removed pixels or other images of the batch change an
            answer.
        patch: side of the square in pixels.
        per_side: largest number of masks along each side. The default gives 36 masks of 4×4 tokens for patches of 32
            pixels in 224×224 images with tokens of 16 pixels.
        batch_size: number of masked images computed together; the answers do not depend on it. Large batches gain
            nothing on a CPU.
        tolerance: smallest relative margin of a certified answer. Default: √eps of the logits' dtype, 3.5e-4 in
            float32; differences between batch shapes are near eps.

    Example:
        answers, certified = pa.MaskedCertifier(model, patch=32)(images)
    """

    removed: Tensor

    def __init__(
        self,
        model: nn.Module,
        patch: int = 32,
        *,
        per_side: int = PER_SIDE,
        batch_size: int = 16,
        tolerance: float | None = None,
    ):
        super().__init__()
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; expected a whole number from 1")
        if tolerance is not None and not 0 <= tolerance < 1:
            raise InputError(f"tolerance is {tolerance}; expected a number from 0 to 1")
        self.patch, self.batch_size, self.tolerance = patch, batch_size, tolerance
        self.grid = token_grid(model)
        self.register_buffer("removed", block_masks(self.grid, patch, per_side), persistent=False)  # (masks, tokens)
        self.model = model
        self.eval()
        check_removal(model, self.grid, self.removed)

    @property
    def masks(self) -> int:
        return len(self.removed)

    @property
    def pairs(self) -> int:
        return self.masks * (self.masks - 1) // 2

    def extra_repr(self) -> str:
        return f"patch={self.patch}, masks={self.masks}"

    def forward(self, images: Tensor) -> CertifiedAnswers:
        """Answers to a batch of images (B, C, H, W), as the model takes them."""
        return self._defend(images, None)

    def for_labels(self, images: Tensor, labels: Tensor) -> CertifiedAnswers:
        """The same answers, certified only where they are the labels; faster, since pairs of masks are not tried on
        images whose answer is wrong already."""
        if labels.shape != images.shape[:1]:
            raise InputError(f"labels have shape {tuple(labels.shape)}; expected ({len(images)},), one per image")
        return self._defend(images, labels.tolist())

    @torch.no_grad()
    def _defend(self, images: Tensor, labels: list[int] | None) -> CertifiedAnswers:
        self._check(images)
        known = _Known()
        singles = [(image, mask, mask) for image in range(len(images)) for mask in range(self.masks)]
        logits = self._learn(images, singles, known)
        answers: list[int] = []
        claims: list[_Claim] = []
        for image in range(len(images)):
            found = [known.label(image, mask, mask) for mask in range(self.masks)]
            answers.append(min(Counter(found).items(), key=lambda item: (-item[1], item[0]))[0])
            if labels is None or len(set(found)) > 1 or found[0] == labels[image]:
                claims += self._claims(image, found, answers[-1], logits[image * self.masks :][: self.masks])
        self._settle(images, claims, known)
        certified = [False] * len(images)
        for claim in reversed(claims):  # of several minority masks, the first decides
            if claim.holds:
                answers[claim.image], certified[claim.image] = claim.label, claim.strict
        where = images.device
        return CertifiedAnswers(torch.tensor(answers, dtype=torch.long, device=where),
                                torch.tensor(certified, dtype=torch.bool, device=where))  # fmt: skip

    def _check(self, images: Tensor) -> None:
        shape = (self.grid.channels, *self.grid.image)
        if images.ndim != 4 or tuple(images.shape[1:]) != shape:
            raise InputError(f"images have shape {tuple(images.shape)}; expected (B, {', '.join(map(str, shape))})")
        if any(each.training for each in self.modules()):
            raise InputError("the model is in training mode, where answers are random; call eval() first")

    def _claims(self, image: int, found: list[int], most: int, logits: Tensor) -> "Iterator[_Claim]":
        """What the pairs of masks must decide about an image, from the answers and logits of single masks."""
        every = range(self.masks)
        if len(set(found)) == 1:
            pairs = self._ordered(most, logits, [(i, j) for i in every for j in every if i <= j])
            yield _Claim(image, most, pairs, strict=True)
            return
        for mask in every:
            if found[mask] != most:
                pairs = [(min(mask, other), max(mask, other)) for other in every if other != mask]
                yield _Claim(image, found[mask], self._ordered(found[mask], logits, pairs), strict=False)

    def _ordered(self, label: int, logits: Tensor, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Pairs sorted by how far their two single masks prefer the label, ascending: wrong pairs come early."""
        lead = logits[:, label] - logits.scatter(1, torch.full((len(logits), 1), label), -torch.inf).amax(1)
        first, second = torch.tensor(pairs).T
        return [pairs[i] for i in (lead[first] + lead[second]).argsort(stable=True).tolist()]

    def _settle(self, images: Tensor, claims: "list[_Claim]", known: "_Known") -> None:
        """Try the pairs of all claims in their order, more and more at a time, until each claim holds or fails."""
        count, undecided = FIRST, claims
        while undecided:
            self._learn(images, known.missing(pair for claim in undecided for pair in claim.next(count)), known)
            undecided = [claim for claim in undecided if not claim.decide(count, known)]
            count = min(2 * count, 2 * self.batch_size)

    def _learn(self, images: Tensor, wanted: list[Pair], known: "_Known") -> Tensor:
        """Answers to images without masks, in batches of equal numbers of tokens. Returns their logits, on the CPU."""
        if not wanted:
            return torch.empty(0)
        image, first, second = torch.tensor(wanted, device=images.device).T
        kept = ~(self.removed[first] | self.removed[second])
        sizes = kept.sum(1)
        found: dict[int, Tensor] = {}
        for size in sizes.unique().tolist():
            for part in (sizes == size).nonzero().flatten().split(self.batch_size):
                positions = kept[part].nonzero()[:, 1].reshape(len(part), size)
                used, rows = image[part].unique(return_inverse=True)
                with keeping(self.model, positions, rows=rows):
                    logits = logits_of(self.model(images[used])).detach()
                known.add([wanted[i] for i in part.tolist()], logits, self.tolerance)
                found |= zip(part.tolist(), logits.float().cpu(), strict=True)
        return torch.stack([found[i] for i in range(len(wanted))])


@dataclass
class _Claim:
    """The claim that all these pairs of masks give one label to an image; `strict` also demands a margin."""

    image: int
    label: int
    pairs: list[tuple[int, int]]
    strict: bool
    place: int = 0  # pairs before it give the label
    holds: bool = False

    def next(self, count: int) -> Iterator[Pair]:
        return ((self.image, *pair) for pair in self.pairs[self.place : self.place + count])

    def decide(self, count: int, known: "_Known") -> bool:
        """Whether the claim is decided, now that its next pairs are known."""
        if not all(known.gives(pair, self.label, self.strict) for pair in self.next(count)):
            return True
        self.place += count
        self.holds = self.place >= len(self.pairs)
        return self.holds


class _Known:
    """Answers to images without pairs of masks, and whether each has a margin."""

    def __init__(self) -> None:
        self._found: dict[Pair, tuple[int, bool]] = {}

    def add(self, pairs: list[Pair], logits: Tensor, tolerance: float | None) -> None:
        least = torch.finfo(logits.dtype).eps ** 0.5 if tolerance is None else tolerance
        best = logits.double().topk(2).values
        margins = best[:, 0] - best[:, 1]
        clear = (margins > least * logits.double().abs().amax(1)) & logits.isfinite().all(1)
        self._found |= zip(pairs, zip(logits.argmax(1).tolist(), clear.tolist(), strict=True), strict=True)

    def missing(self, pairs: Iterable[Pair]) -> list[Pair]:
        return sorted(set(pairs) - self._found.keys())

    def label(self, *pair: Any) -> int:
        return self._found[pair][0]

    def gives(self, pair: Pair, label: int, strict: bool) -> bool:
        answer, clear = self._found[pair]
        return answer == label and (clear or not strict)
