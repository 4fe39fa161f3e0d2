"""Sparse mixture of experts in place of a feed-forward layer: each token uses its `top_k` highest-scoring experts."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError

# Matrix products with few rows use other kernels, whose sums differ in their last bits. With the number of rows a
# multiple of BLOCK, the result of a token does not depend on the other tokens of its expert, bit for bit.
BLOCK = 16


class SparseExperts(nn.Module):
    """Experts Linear–ReLU–Dropout–Linear with a linear router. The output is the sum of the chosen experts' outputs,
    weighted by a softmax over their scores.

    Tokens are sorted by expert, so only the chosen experts are computed. In training, `balance_loss` is the
    load-balancing loss of the last call, E·Σ share·probability (Fedus et al., 2022), which is 1 for an even load;
    `load` counts the tokens of each expert since the last call of `statistics`.
    """

    load: Tensor
    importance: Tensor

    def __init__(self, dim: int, inner_dim: int, experts: int, top_k: int = 2, dropout: float = 0.0):
        super().__init__()
        if not 1 <= top_k <= experts:
            raise InputError(f"top_k is {top_k}; expected from 1 to the {experts} experts")
        self.top_k, self.dropout = top_k, dropout
        self.router = nn.Linear(dim, experts)
        self.up, self.up_bias = (
            nn.Parameter(torch.empty(experts, *shape)) for shape in ((inner_dim, dim), (inner_dim,))
        )
        self.down, self.down_bias = (nn.Parameter(torch.empty(experts, *shape)) for shape in ((dim, inner_dim), (dim,)))
        self.register_buffer("load", torch.zeros(experts))  # in checkpoints, so that a resumed run logs the same
        self.register_buffer("importance", torch.zeros(experts))
        self.balance_loss: Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight, bias in ((self.up, self.up_bias), (self.down, self.down_bias)):
            bound = 1 / math.sqrt(weight.shape[-1])  # as nn.Linear
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Output (…, dim) for x (…, dim). Tokens where the boolean mask (…) is False use no expert and return 0."""
        shape = x.shape
        tokens = x.reshape(-1, shape[-1])
        if mask is not None:
            kept = mask.reshape(-1).nonzero().squeeze(-1)
            mixed = self._mix(tokens[kept])
            return mixed.new_zeros(tokens.shape).index_copy(0, kept, mixed).reshape(shape)
        return self._mix(tokens).reshape(shape)

    def _mix(self, tokens: Tensor) -> Tensor:
        if not len(tokens):
            return tokens
        scores = self.router(tokens)  # (M, E)
        top, chosen = scores.topk(self.top_k, -1)
        counts = chosen.flatten().bincount(minlength=scores.shape[-1])
        if self.training:
            self._watch(scores, counts)
        source, place, sizes = self._layout(chosen.flatten(), counts)
        weights = (self.up.unbind(), self.up_bias.unbind(), self.down.unbind(), self.down_bias.unbind())
        answers = [
            self._expert(rows, *weight)
            for rows, *weight in zip(tokens.index_select(0, source).split(sizes), *weights, strict=True)
            if len(rows)
        ]
        slots = torch.cat(answers).index_select(0, place).unflatten(0, (-1, self.top_k))  # (M, k, dim)
        # For top_k = 1 a softmax over one score would always be 1, without a gradient for the router; the weight is
        # then the expert's probability among all experts.
        shares = top.softmax(-1) if self.top_k > 1 else scores.softmax(-1).gather(-1, chosen)
        return (slots * shares.unsqueeze(-1).to(slots.dtype)).sum(1)

    def _layout(self, chosen: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, list[int]]:
        """Layout of the rows, sorted by expert; the rows of each expert are padded to a multiple of BLOCK with token 0.
        Returns the token of each row, the row of each slot (token, choice), and the number of rows of each expert."""
        whole = (counts + BLOCK - 1) // BLOCK * BLOCK
        order = chosen.argsort(stable=True)  # (M·k): slots by expert
        shift = (whole.cumsum(0) - whole) - (counts.cumsum(0) - counts)  # padding of the experts before
        rows = torch.arange(len(order), device=order.device) + shift[chosen[order]]
        sizes = whole.tolist()
        source = order.new_zeros(sum(sizes)).index_copy_(0, rows, order // self.top_k)
        return source, torch.empty_like(order).index_copy_(0, order, rows), sizes

    def _expert(self, rows: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
        inner = F.dropout(F.linear(rows, up, up_bias).relu(), self.dropout, self.training)
        return F.linear(inner, down, down_bias)

    def _watch(self, scores: Tensor, counts: Tensor) -> None:
        probability = scores.float().softmax(-1).mean(0)
        self.balance_loss = scores.shape[-1] * (counts / counts.sum() * probability).sum()
        self.load += counts
        self.importance += probability.detach() * len(scores)

    def statistics(self) -> dict[str, float]:
        """Statistics of the tokens since the last call: load of the busiest and the idlest expert divided by an even
        load, and entropy of the router's mean probabilities divided by its maximum."""
        total = self.load.sum()
        if not total:
            return {}
        share, mean = self.load / total, self.importance / self.importance.sum()
        experts = len(share)
        entropy = -(mean * mean.clamp(min=1e-12).log()).sum() / math.log(experts) if experts > 1 else mean.sum()
        self.forget()
        found = {"busiest": share.max() * experts, "idlest": share.min() * experts, "entropy": entropy}
        return {name: float(value) for name, value in found.items()}

    def forget(self) -> None:
        """Reset the counts of tokens and probabilities, which are not part of a saved model."""
        self.load.zero_()
        self.importance.zero_()
