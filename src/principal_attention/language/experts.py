"""A sparse mixture of experts instead of a feed-forward layer: each token goes to the `top_k` it scores highest."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError

# Matrix products of few rows take other kernels, whose sums differ in their last bits. Whole blocks of rows keep a
# token's result the same, bit for bit, however many others its expert has: so no later token moves an earlier one.
BLOCK = 16


class SparseExperts(nn.Module):
    """`experts` times Linear–ReLU–Dropout–Linear behind a linear router; the chosen ones' answers are weighted by a
    softmax over their scores.

    Tokens are sorted by expert, so each expert is two matrix products over its own tokens: the cost is that of the
    experts used. In training, `balance_loss` is the last call's E·Σ share·probability (Fedus et al., 2022; 1 where
    the load is even), and `load` counts tokens by expert since `statistics` was last asked.
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
        self.register_buffer("load", torch.zeros(experts))  # kept in checkpoints: a resumed run logs the same
        self.register_buffer("importance", torch.zeros(experts))
        self.balance_loss: Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight, bias in ((self.up, self.up_bias), (self.down, self.down_bias)):
            bound = 1 / math.sqrt(weight.shape[-1])  # nn.Linear's own
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x is (…, dim); tokens that the boolean mask (…) leaves out go to no expert, and their rows are zero."""
        shape = x.shape
        tokens = x.reshape(-1, shape[-1])
        if mask is not None:
            kept = mask.reshape(-1).nonzero().squeeze(-1)
            mixed = self._mix(tokens[kept])
            return mixed.new_zeros(tokens.shape).index_copy(0, kept, mixed).reshape(shape)
        return self._mix(tokens).reshape(shape)

    def _mix(self, tokens: Tensor) -> Tensor:
        scores = self.router(tokens)  # (M, E)
        top, chosen = scores.topk(self.top_k, -1)
        if self.training:
            self._watch(scores, chosen)
        order = chosen.flatten().argsort(stable=True)  # (M·k): slots by expert
        counts = chosen.flatten().bincount(minlength=scores.shape[-1]).tolist()
        weights = (self.up.unbind(), self.up_bias.unbind(), self.down.unbind(), self.down_bias.unbind())
        answers = [
            self._expert(tokens, rows, *weight)
            for rows, *weight in zip((order // self.top_k).split(counts), *weights, strict=True)
            if len(rows)
        ]
        if not answers:
            return tokens
        sorted_ = torch.cat(answers)
        slots = torch.zeros_like(sorted_).index_copy(0, order, sorted_).unflatten(0, (-1, self.top_k))  # (M, k, dim)
        # one score alone would always weigh 1, and its router never learn: it weighs what it does among all
        shares = top.softmax(-1) if self.top_k > 1 else scores.softmax(-1).gather(-1, chosen)
        return (slots * shares.unsqueeze(-1).to(slots.dtype)).sum(1)

    def _expert(
        self, tokens: Tensor, rows: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
    ) -> Tensor:
        whole = F.pad(rows, (0, -len(rows) % BLOCK))
        inner = F.dropout(F.linear(tokens[whole], up, up_bias).relu(), self.dropout, self.training)
        return F.linear(inner, down, down_bias)[: len(rows)]

    def _watch(self, scores: Tensor, chosen: Tensor) -> None:
        probability = scores.float().softmax(-1).mean(0)
        counts = chosen.flatten().bincount(minlength=scores.shape[-1])
        share = counts / max(1, chosen.numel())
        self.balance_loss = scores.shape[-1] * (share * probability).sum()
        self.load += counts
        self.importance += probability.detach() * len(scores)

    def statistics(self) -> dict[str, float]:
        """Of the tokens since the last call: the busiest and the idlest expert's share of an even load, and the
        entropy of the router's mean probabilities, as a share of the largest there is."""
        total = self.load.sum()
        if not total:
            return {}
        share, mean = self.load / total, self.importance / self.importance.sum()
        experts = len(share)
        entropy = -(mean * mean.clamp(min=1e-12).log()).sum() / math.log(experts) if experts > 1 else mean.sum()
        self.load.zero_()
        self.importance.zero_()
        found = {"busiest": share.max() * experts, "idlest": share.min() * experts, "entropy": entropy}
        return {name: float(value) for name, value in found.items()}
