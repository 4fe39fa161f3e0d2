"""Configuration of a language model: `model.options` of a recipe, and `model` in config.json."""

from typing import Any, Literal

from pydantic import Field, model_validator

from ..plumbing.sections import Count, NotNegative, Section, Share, Whole

Attention = Literal["softmax", "symmetric"]
SWAP_RATE = 0.015  # share of the words that the word-swap attack replaces, as in the paper
# architectures of this package in config.json
LANGUAGE, CLASSIFIER = "principal_attention.LanguageModel", "principal_attention.LastPosition"


class LanguageConfig(Section):
    vocab_size: Count
    context: Count = 256  # tokens per training window; number of learned positions
    depth: Count = 16
    embed_dim: Count = 128
    num_heads: Count = 8
    inner_dim: Count = 2048
    attention: Attention | list[Attention] = "softmax"  # for all layers, or a list with one per layer
    norm: Literal["post", "pre"] = "post"
    activation: Literal["relu", "gelu"] = "relu"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    qkv_bias: bool = False
    dropout: Share = 0.1
    attn_dropout: Share = 0.0
    cutoffs: list[Count] = Field(default_factory=list)  # cutoffs of the adaptive softmax; empty: plain softmax
    experts: Whole = 0  # number of experts that replace each feed-forward layer; 0: no experts
    top_k: Count = 2  # number of experts per token
    balance: NotNegative = 0.0  # weight of the load-balancing loss of the experts
    mu: Literal["prefix", "global"] = "prefix"  # tokens for mu of RPC layers; "global" includes later ones
    rpc: dict[str, Any] | None = None  # RPC-Attention of the layers, as recorded by `robustify`

    @model_validator(mode="after")
    def _fits(self) -> "LanguageConfig":
        if self.embed_dim % self.num_heads or (self.positions == "sinusoidal" and self.embed_dim % 2):
            raise ValueError(
                f"embed_dim is {self.embed_dim} with {self.num_heads} heads; expected a multiple of the "
                "number of heads, and an even number if positions are sinusoidal"
            )
        if isinstance(self.attention, list) and len(self.attention) != self.depth:
            raise ValueError(f"attention names {len(self.attention)} layers; expected {self.depth}, the depth")
        if self.experts and self.activation != "relu":
            raise ValueError(f"activation is {self.activation}, but experts use ReLU; drop activation or experts")
        if self.experts and self.top_k > self.experts:
            raise ValueError(f"top_k is {self.top_k}; expected at most the {self.experts} experts")
        return self

    def attention_of(self, layer: int) -> Attention:
        return self.attention[layer] if isinstance(self.attention, list) else self.attention


_LM = dict(depth=16, embed_dim=128, num_heads=8, inner_dim=2048, context=256, cutoffs=[20_000, 40_000, 200_000])
_SMOE = dict(num_heads=8, experts=16, top_k=2, balance=0.01)
_SMALL = _SMOE | dict(depth=3, embed_dim=128, inner_dim=128, context=256)
_MEDIUM = _SMOE | dict(depth=6, embed_dim=352, inner_dim=352, context=512)
_GPT = dict(
    depth=16, embed_dim=410, num_heads=10, inner_dim=2100, context=256, norm="pre", activation="gelu",
    positions="learned", qkv_bias=True,
)  # fmt: skip
# Models of the paper, configured as in their own repositories; "sym" stands for symmetric attention.
NAMES: dict[str, dict[str, Any]] = {
    "lm_small": _LM,
    "symlm_small": _LM | dict(attention="symmetric"),
    "smoe_small": _SMALL,
    "symsmoe_small": _SMALL | dict(attention="symmetric"),
    "smoe_medium": _MEDIUM,
    "symsmoe_medium": _MEDIUM | dict(attention="symmetric"),
    "gpt_small": _GPT,
    "symgpt_small": _GPT | dict(attention="symmetric"),
}
