"""Adaptive softmax of Grave et al. (2017), with the embedding as its output weights.

Tokens are numbered by decreasing frequency. The head holds the first `cutoffs[0]` tokens and one entry for each cluster
of rarer tokens. In `losses`, the softmax of a cluster is computed only for positions whose target is in the cluster.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError


class AdaptiveSoftmax(nn.Module):
    """Adaptive softmax; without cutoffs, the plain softmax. `table`, passed to its methods, is the caller's embedding
    (vocab_size, dim)."""

    def __init__(self, vocab_size: int, dim: int, cutoffs: Sequence[int] = ()):
        super().__init__()
        edges = [*cutoffs, vocab_size]
        if edges[0] < 1 or any(low >= high for low, high in pairwise(edges)):
            raise InputError(
                f"cutoffs is {list(cutoffs)} for a vocabulary of {vocab_size}; expected increasing numbers below it"
            )
        self.short = edges[0]
        self.tails = list(pairwise(edges))  # first and last (excluded) token of each cluster
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.clusters = nn.Linear(dim, len(self.tails)) if self.tails else None

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        """Log-probabilities of all tokens, (…, vocab_size)."""
        head = _wide(self._head(hidden, table)).log_softmax(-1)
        parts = [head[..., : self.short]]
        for number, span in enumerate(self.tails):
            entry = head[..., self.short + number, None]
            parts.append(entry + _wide(self._tail(hidden, table, span)).log_softmax(-1))
        return torch.cat(parts, -1)

    def losses(self, hidden: Tensor, table: Tensor, targets: Tensor) -> Tensor:
        """−log p of each target, in the shape of `targets`."""
        flat, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
        entry, meant = wanted, [(wanted >= low) & (wanted < high) for low, high in self.tails]
        for number, inside in enumerate(meant):
            entry = torch.where(inside, self.short + number, entry)
        losses = F.cross_entropy(_wide(self._head(flat, table)), entry, reduction="none")
        for (low, high), inside in zip(self.tails, meant, strict=True):
            rows = inside.nonzero().squeeze(-1)
            if len(rows):
                tail = _wide(self._tail(flat[rows], table, (low, high)))
                losses = losses.index_add(0, rows, F.cross_entropy(tail, wanted[rows] - low, reduction="none"))
        return losses.reshape(targets.shape)

    def _head(self, hidden: Tensor, table: Tensor) -> Tensor:
        words = F.linear(hidden, table[: self.short], self.bias[: self.short])
        return words if self.clusters is None else torch.cat([words, self.clusters(hidden)], -1)

    def _tail(self, hidden: Tensor, table: Tensor, span: tuple[int, int]) -> Tensor:
        low, high = span
        return F.linear(hidden, table[low:high], self.bias[low:high])


def _wide(logits: Tensor) -> Tensor:
    """Logits in float32 or wider, since half precision is too coarse for a softmax over many tokens."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
