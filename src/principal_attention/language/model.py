"""Causal transformer language model, with a choice of attention in each layer."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..adapt.models import robustify
from ..errors import InputError, LeakWarning
from ..modules import Mechanism, SelfAttention, Softmax, Symmetric
from ..pursuit import PursuitCache
from .adaptive import AdaptiveSoftmax
from .config import LanguageConfig
from .experts import SparseExperts

MECHANISMS: dict[str, type[Mechanism]] = {"softmax": Softmax, "symmetric": Symmetric}
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class Block(nn.Module):
    """Transformer block: attention, then a feed-forward layer or experts."""

    def __init__(self, config: LanguageConfig, layer: int):
        super().__init__()
        dim, drop = config.embed_dim, config.dropout
        self.pre = config.norm == "pre"
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(
            dim, config.num_heads, MECHANISMS[config.attention_of(layer)](), qkv_bias=config.qkv_bias,
            proj_bias=config.qkv_bias, attn_drop=config.attn_dropout, proj_drop=drop,
        )  # fmt: skip
        self.mlp = (
            SparseExperts(dim, config.inner_dim, config.experts, config.top_k, drop)
            if config.experts
            else nn.Sequential(
                nn.Linear(dim, config.inner_dim), ACTIVATIONS[config.activation](), nn.Dropout(drop),
                nn.Linear(config.inner_dim, dim),
            )
        )  # fmt: skip
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, real: Tensor | None, **seen: Any) -> Tensor:
        """Output (B, T, dim). `real`: mask (B, T), True for a real token; `seen`: masks and cache of the attention."""
        if self.pre:
            x = x + self.attn(self.norm1(x), **seen)
            return x + self._feed(self.norm2(x), real)
        x = self.norm1(x + self.attn(x, **seen))
        return self.norm2(x + self._feed(x, real))  # type: ignore[no-any-return]

    def _feed(self, x: Tensor, real: Tensor | None) -> Tensor:
        return self.drop(self.mlp(x, real) if isinstance(self.mlp, SparseExperts) else self.mlp(x))  # type: ignore[no-any-return]


class LanguageModel(nn.Module):
    """Language model from tokens (B, T) to log-probabilities of the next token, (B, T, vocab_size)."""

    def __init__(self, config: LanguageConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embed_dim)
        self.positions = nn.Embedding(config.context, config.embed_dim) if config.positions == "learned" else None
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.depth))
        self.norm = nn.LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()
        self.head = AdaptiveSoftmax(config.vocab_size, config.embed_dim, config.cutoffs)
        self.apply(_initialise)
        if config.rpc is not None:
            robustify(self)  # as recorded in the config

    @property
    def rpc_record(self) -> Any:
        """Record of RPC-Attention in the config, read and written by `robustify`."""
        return self.config.rpc

    @rpc_record.setter
    def rpc_record(self, choice: Any) -> None:
        if choice is not None and self.config.mu == "global":
            warnings.warn(
                "mu: global lets every row of an RPC layer see later tokens through mu, so the model may have seen the "
                "tokens it predicts",
                LeakWarning,
                stacklevel=2,
            )
        self.config = self.config.model_copy(update={"rpc": choice})

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, *, key_mask: Tensor | None = None,
        caches: Sequence[PursuitCache] | None = None,
    ) -> Tensor:  # fmt: skip
        """Log-probabilities (B, T, vocab_size), or −log p of each target (B, T), which is cheaper with cutoffs.

        Args:
            tokens: tokens (B, T).
            targets: tokens (B, T) to compute −log p of. Default: log-probabilities of all tokens.
            key_mask: boolean (B, T), True for a real token; padding comes last.
            caches: one cache per layer, from `new_caches`; the tokens then continue those of earlier calls.
        """
        hidden = self.hidden(self.embed(tokens), key_mask, caches)
        if targets is None:
            return self.head(hidden, self.embedding.weight)  # type: ignore[no-any-return]
        return self.head.losses(hidden, self.embedding.weight, targets)

    def embed(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or tokens.dtype not in (torch.long, torch.int):
            raise InputError(f"tokens are {tokens.dtype} of shape {tuple(tokens.shape)}; expected whole numbers (B, T)")
        # scaled to the size of the sinusoids; learned positions are as small as the embeddings
        scale = math.sqrt(self.config.embed_dim) if self.positions is None else 1.0
        return self.embedding(tokens) * scale  # type: ignore[no-any-return]

    def hidden(self, x: Tensor, key_mask: Tensor | None = None, caches: Sequence[PursuitCache] | None = None) -> Tensor:
        """Output of the last layer (B, T, dim) from embedded tokens (B, T, dim)."""
        start, length = len(caches[0]) if caches else 0, x.shape[1]
        x = self.drop(x + self._places(start, length, x))
        seen: dict[str, Any] = {"is_causal": True}
        if self.config.mu == "global":  # with a triangular mask instead of is_causal, mu is computed from all keys
            if caches:
                raise InputError("mu: global cannot decode from a cache: each new token would change earlier rows")
            lower = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            seen = {"attn_mask": lower, "key_mask": key_mask}
        for layer, block in enumerate(self.blocks):
            x = block(x, key_mask, cache=caches[layer] if caches else None, **seen)
        return self.norm(x)  # type: ignore[no-any-return]

    def _places(self, start: int, length: int, like: Tensor) -> Tensor:
        if self.positions is not None:
            if start + length > self.config.context:
                raise InputError(f"the text has {start + length} tokens; the model has {self.config.context} positions")
            return self.positions.weight[start : start + length]
        return sinusoids(start, length, self.config.embed_dim, like.device).to(like)

    def new_caches(self) -> list[PursuitCache]:
        return [PursuitCache() for _ in self.blocks]

    def experts(self) -> list[SparseExperts]:
        return [module for module in self.modules() if isinstance(module, SparseExperts)]

    def balance_loss(self) -> Tensor | float:
        """Load-balancing loss of the experts in the last call: its mean over layers times `balance`."""
        found = []
        for each in self.experts():
            if each.balance_loss is not None:
                found.append(each.balance_loss)
                each.balance_loss = None  # frees the graph
        return self.config.balance * torch.stack(found).mean() if found and self.config.balance else 0.0

    def statistics(self) -> dict[str, float]:
        """Statistics of the experts of each layer in training since the last call, in this process."""
        return {
            f"router_{name}_{layer}": value
            for layer, experts in enumerate(self.experts())
            for name, value in experts.statistics().items()
        }


def sinusoids(start: int, length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Sinusoidal position embeddings (length, dim) from position `start` on: sines, then cosines."""
    rates = 10_000 ** (-torch.arange(0, dim, 2, device=device) / dim)
    angles = torch.arange(start, start + length, device=device)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    if isinstance(module, SparseExperts):
        for weight in (module.up, module.down):
            nn.init.normal_(weight, std=0.02)
        for bias in (module.up_bias, module.down_bias):
            nn.init.zeros_(bias)
