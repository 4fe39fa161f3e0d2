"""A causal transformer over tokens, with any of our attentions in each layer."""

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
        """`real` says which tokens are; `seen` is what attention may see."""
        if self.pre:
            x = x + self.attn(self.norm1(x), **seen)
            return x + self._feed(self.norm2(x), real)
        x = self.norm1(x + self.attn(x, **seen))
        return self.norm2(x + self._feed(x, real))  # type: ignore[no-any-return]

    def _feed(self, x: Tensor, real: Tensor | None) -> Tensor:
        return self.drop(self.mlp(x, real) if isinstance(self.mlp, SparseExperts) else self.mlp(x))  # type: ignore[no-any-return]


class LanguageModel(nn.Module):
    """Tokens (B, T) to log-probabilities of the next one, (B, T, vocab_size)."""

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
            robustify(self)  # what the config records

    @property
    def rpc_record(self) -> Any:
        """Where `robustify` reads and writes what it did."""
        return self.config.rpc

    @rpc_record.setter
    def rpc_record(self, choice: Any) -> None:
        if choice is not None and self.config.mu == "global":
            warnings.warn(
                "mu: global lets every row of an RPC layer see later tokens through mu: what such a model predicts, it "
                "may have seen",
                LeakWarning,
                stacklevel=2,
            )
        self.config = self.config.model_copy(update={"rpc": choice})

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, *, key_mask: Tensor | None = None,
        caches: Sequence[PursuitCache] | None = None,
    ) -> Tensor:  # fmt: skip
        """Log-probabilities; with `targets` (B, T) only each one's −log p, for which rare tokens cost little.

        `key_mask` (B, T) is True for real tokens; padding must come after them. `caches` (one a layer, from
        `new_caches`) make the tokens a continuation of those seen before.
        """
        hidden = self.hidden(self.embed(tokens), key_mask, caches)
        if targets is None:
            return self.head(hidden, self.embedding.weight)  # type: ignore[no-any-return]
        return self.head.losses(hidden, self.embedding.weight, targets)

    def embed(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or tokens.dtype not in (torch.long, torch.int):
            raise InputError(f"tokens are {tokens.dtype} of shape {tuple(tokens.shape)}; expected whole numbers (B, T)")
        # beside sines of size 1 the embeddings are scaled up to them; learned positions are as small as they are
        scale = math.sqrt(self.config.embed_dim) if self.positions is None else 1.0
        return self.embedding(tokens) * scale  # type: ignore[no-any-return]

    def hidden(self, x: Tensor, key_mask: Tensor | None = None, caches: Sequence[PursuitCache] | None = None) -> Tensor:
        """Embedded tokens (B, T, dim) to what the last layer makes of them."""
        start, length = len(caches[0]) if caches else 0, x.shape[1]
        x = self.drop(x + self._places(start, length, x))
        seen: dict[str, Any] = {"is_causal": True}
        if self.config.mu == "global":  # a triangular mask instead: mu is then taken over all keys
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
        """What the experts' uneven load adds to the loss of the last call, `balance` times its mean over layers."""
        found = []
        for each in self.experts():
            if each.balance_loss is not None:
                found.append(each.balance_loss)
                each.balance_loss = None  # so that no graph is kept
        return self.config.balance * torch.stack(found).mean() if found and self.config.balance else 0.0

    def statistics(self) -> dict[str, float]:
        """The load of the experts of each layer in training, since this was last asked; in this process."""
        return {
            f"router_{name}_{layer}": value
            for layer, experts in enumerate(self.experts())
            for name, value in experts.statistics().items()
        }


def sinusoids(start: int, length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Sines, then cosines, of the places from `start` on."""
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
