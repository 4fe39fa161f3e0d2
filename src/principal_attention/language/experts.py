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
        # one score alone would always weigh 1, and its router never learn: it weighs what it does among all
        shares = top.softmax(-1) if self.top_k > 1 else scores.softmax(-1).gather(-1, chosen)
        return (slots * shares.unsqueeze(-1).to(slots.dtype)).sum(1)

    def _layout(self, chosen: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, list[int]]:
        """Rows by expert, each expert's filled up to whole blocks with token 0: the token of every row, the row of
        every slot, and how many rows each expert has."""
        whole = (counts + BLOCK - 1) // BLOCK * BLOCK
        order = chosen.argsort(stable=True)  # (M·k): slots by expert
        shift = (whole.cumsum(0) - whole) - (counts.cumsum(0) - counts)  # by the filling of experts before
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
        """Of the tokens since the last call: the busiest and the idlest expert's share of an even load, and the
        entropy of the router's mean probabilities, as a share of the largest there is."""
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
        """What was counted: it belongs to a training and not to the model."""
        self.load.zero_()
        self.importance.zero_()
