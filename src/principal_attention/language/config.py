"""What a language model is made of, as plain values: a recipe's `model.options`, and the card beside the weights."""

from typing import Any, Literal

from pydantic import Field, model_validator

from ..plumbing.sections import Count, NotNegative, Section, Share, Whole

Attention = Literal["softmax", "symmetric"]
SWAP_RATE = 0.015  # share of the words that the word-swap attack replaces: the paper's
# What the card of one of our models says that it describes.
LANGUAGE, CLASSIFIER = "principal_attention.LanguageModel", "principal_attention.LastPosition"


class LanguageConfig(Section):
    vocab_size: Count
    context: Count = 256  # tokens it is trained on at a time; as many positions there are, where they are learned
    depth: Count = 16
    embed_dim: Count = 128
    num_heads: Count = 8
    inner_dim: Count = 2048
    attention: Attention | list[Attention] = "softmax"  # of all layers, or of each
    norm: Literal["post", "pre"] = "post"
    activation: Literal["relu", "gelu"] = "relu"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    qkv_bias: bool = False
    dropout: Share = 0.1
    attn_dropout: Share = 0.0
    cutoffs: list[Count] = Field(
        default_factory=list
    )  # of the adaptive softmax, whose weights are the embedding; none: one softmax over all
    experts: Whole = 0  # in the place of each feed-forward layer; 0: none
    top_k: Count = 2
    balance: NotNegative = 0.0  # how much the experts' uneven load adds to the loss
    mu: Literal["prefix", "global"] = "prefix"  # of RPC layers; the global one sees later tokens
    rpc: dict[str, Any] | None = None  # where RPC-Attention is, as `robustify` records it

    @model_validator(mode="after")
    def _fits(self) -> "LanguageConfig":
        if self.embed_dim % self.num_heads or (self.positions == "sinusoidal" and self.embed_dim % 2):
            raise ValueError(
                f"embed_dim is {self.embed_dim} with {self.num_heads} heads; expected an even number that they divide"
            )
        if isinstance(self.attention, list) and len(self.attention) != self.depth:
            raise ValueError(f"attention names {len(self.attention)} layers; expected {self.depth}, as depth says")
        if self.experts and self.activation != "relu":
            raise ValueError(f"activation is {self.activation}, and experts are ReLU layers; drop one of them")
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
# The paper's models, as their own repositories configure them; "sym" is symmetric attention.
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
