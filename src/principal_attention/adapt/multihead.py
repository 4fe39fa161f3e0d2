"""RPC-Attention in `torch.nn.MultiheadAttention`, which `TransformerEncoder` and torchvision's ViT use."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..sdpa import as_bias
from .masks import visible_keys
from .robust import Answers, Robust, Swapped


class Multihead(Robust):
    """A `MultiheadAttention` with `rpc_attention` between its projections. Attention weights are returned as None."""

    # An encoder layer reads this attribute to decide whether to compute the layer in a fused kernel, which must not be.
    _qkv_same_embed_dim = Answers(False)

    @classmethod
    def refuse(cls, module: nn.Module) -> None:
        super().refuse(module)
        check_plain(module)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        own: Any = self
        check_one_sequence(query, key, value)
        single, first = query.ndim == 2, own.batch_first or query.ndim == 2
        q, k, v = project(self, query)
        key_mask, mask, triangular = read_masks(key_padding_mask, attn_mask, q)
        out = self.rpc_attend(
            q, k, v, key_mask=key_mask, attn_mask=mask, is_causal=is_causal or triangular,
            dropout_p=own.dropout if self.training else 0.0,
        )  # fmt: skip
        out = own.out_proj(out.transpose(1, 2).flatten(2))
        return (out.squeeze(0) if single else out if first else out.transpose(0, 1)), None


def check_plain(module: Any) -> None:
    if module.bias_k is not None or module.add_zero_attn or module.in_proj_weight is None:
        raise InputError(
            "this MultiheadAttention was created with add_bias_kv, add_zero_attn, kdim or vdim; expected plain "
            "self-attention, without these options"
        )


def check_one_sequence(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query is not key or key is not value:
        raise InputError(
            "a MultiheadAttention was given different tensors as query, key and value; RPC-Attention needs "
            "self-attention, pass the same tensor for all three"
        )


def project(module: Any, x: Tensor) -> list[Tensor]:
    """Queries, keys and values, each (B, H, N, D), that a `MultiheadAttention` projects from its input x."""
    x = x.unsqueeze(0) if x.ndim == 2 else x if module.batch_first else x.transpose(0, 1)  # (B, N, C)
    return [
        t.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for t in F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    ]


def takes(module: nn.Module) -> bool:
    """Whether the module is a `MultiheadAttention` with torch's own forward; a subclass may have overridden it."""
    return isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward


def read_masks(padding: Tensor | None, mask: Tensor | None, q: Tensor) -> tuple[Tensor | None, Tensor | None, bool]:
    """Key mask, attention mask and whether it is causal. In masks of `MultiheadAttention`, True hides a key; here, True
    keeps it."""
    if mask is not None:
        mask = mask.logical_not() if mask.dtype == torch.bool else mask
        if mask.ndim == 3:  # (B·H, N, N)
            mask = mask.reshape(*q.shape[:2], *mask.shape[-2:])
    seen, triangular = visible_keys(mask, q, q.shape[-2])
    if padding is not None:
        padding = padding.reshape(-1, 1, 1, padding.shape[-1])  # (B, 1, 1, N)
        padding = padding.logical_not() if padding.dtype == torch.bool else padding
        unpadded, _ = visible_keys(padding, q, q.shape[-2])
        assert unpadded is not None
        seen = unpadded if seen is None else seen & unpadded
        if padding.dtype != torch.bool:  # an additive mask, which may also hold finite biases
            bias = as_bias(mask, padding.dtype)
            mask = padding if bias is None else bias + padding
    return seen, mask, triangular


class Padded(Swapped):
    """A `TransformerEncoder` that does not convert padded batches to nested tensors, which a pursuit cannot process."""

    use_nested_tensor = Answers(False)
