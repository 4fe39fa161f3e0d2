"""`Heads`, the tensors of one attention call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Heads:
    """One attention call of a model, with detached tensors (B, H, N, D); `key_mask` (B, N) is True for real tokens."""

    layer: int  # index from 0
    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor
    scale: float  # factor of the logits
    causal: bool = False
    key_mask: Tensor | None = None

    def sequences(self) -> Iterator[tuple[slice, "Heads"]]:
        """Unpadded parts of the batch, each with its rows: one part without padding, else one part per example."""
        if self.key_mask is None or bool(self.key_mask.all()):
            yield slice(0, len(self.keys)), self
            return
        for number, real in enumerate(self.key_mask):
            q, k, v, out = (
                t[number : number + 1, :, real] for t in (self.queries, self.keys, self.values, self.outputs)
            )
            alone = replace(self, queries=q, keys=k, values=v, outputs=out, key_mask=None)
            yield slice(number, number + 1), alone

    def split(self, rows: slice, pieces: int) -> Iterator[tuple[slice, "Heads"]]:
        """Split the batch into `pieces`, each with its rows. `rows` are the rows of this batch in the whole batch."""
        step = -(-len(self.keys) // pieces)
        for start in range(0, len(self.keys), step):
            piece = slice(start, start + step)
            q, k, v, out = (t[piece] for t in (self.queries, self.keys, self.values, self.outputs))
            there = slice(rows.start + start, min(rows.stop, rows.start + start + step))
            yield there, replace(self, queries=q, keys=k, values=v, outputs=out, key_mask=None)

    def prefixes(self, lengths: Sequence[int]) -> Iterator[tuple[int, "Heads"]]:
        """Single queries of a causal head, each with the keys up to it: for each length, query `length` and its keys.

        A causal head has no g common to all queries, so each query is analysed by itself.
        """
        for length in lengths:
            row, seen = slice(length - 1, length), slice(0, length)
            yield length, replace(
                self, queries=self.queries[..., row, :], keys=self.keys[..., seen, :], values=self.values[..., seen, :],
                outputs=self.outputs[..., row, :], causal=False,
            )  # fmt: skip
