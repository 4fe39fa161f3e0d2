"""Generation in transformers: a `PursuitCache` as a layer of transformers' cache.

A layer of transformers stores keys and values and returns all of them. A pursuit changes the keys in every pass, so
`PursuitCache` stores the keys of each pass, and `PursuitLayer` forwards the operations of generation to it: reorder
beams, select and repeat batch entries, and crop drafted tokens. A token pursuit changes no keys; a `TokenLayer` stores
them as they are, and the penalty of each token beside them.
"""

from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from ..errors import InputError
from ..pursuit import PursuitCache


class PursuitLayer(DynamicLayer):
    """Layer of a transformers cache that holds a `PursuitCache`."""

    def __init__(self) -> None:
        super().__init__()
        self.pursuit, self._lent = PursuitCache(), False

    def lend(self) -> PursuitCache:
        """The `PursuitCache`, for a layer with RPC-Attention whose forward calls `update` next."""
        self._lent = True
        return self.pursuit

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the new rows only; `rpc_attention` appends them to the `PursuitCache`."""
        if not self._lent:
            raise InputError(
                "this cache was filled with RPC-Attention and is now given to a layer without it; use a new cache"
            )
        self.is_initialized, self._lent = True, False
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self.pursuit.length

    def reset(self) -> None:
        self.pursuit, self.is_initialized = PursuitCache(), False

    def crop(self, tokens_to_remove: int) -> None:
        self.pursuit.crop(self.pursuit.length - abs(tokens_to_remove))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.pursuit.select(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.pursuit.select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.pursuit.repeat(repeats)

    def offload(self) -> None:
        """Do nothing: the cache stays on its device."""

    prefetch = offload


class TokenLayer(DynamicLayer):
    """Layer of a transformers cache that also holds the penalties of its tokens, (B, N)."""

    def __init__(self) -> None:
        super().__init__()
        self._penalties: Tensor | None = None

    def extend(self, new: Tensor) -> Tensor:
        """Penalties of all tokens, after those of the new ones (B, M) were added."""
        held = self._penalties
        self._penalties = new if held is None else torch.cat([held.expand(len(new), -1), new], -1)
        return self._penalties

    def reset(self) -> None:
        self._penalties = None
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)
        if self._penalties is not None:
            self._penalties = self._penalties[..., : self.get_seq_length()]

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._select(indices)

    def reorder_cache(self, beam_idx: Any) -> None:
        super().reorder_cache(beam_idx)
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        if self._penalties is not None:
            self._penalties = self._penalties.repeat_interleave(repeats, 0)

    def _select(self, indices: Tensor) -> None:
        if self._penalties is not None:
            self._penalties = self._penalties[indices.to(self._penalties.device)]


Own = TypeVar("Own", PursuitLayer, TokenLayer)


def pursuit_layer(past: Cache, index: int | None, is_causal: bool) -> PursuitLayer:
    """Layer `index` of the cache, replaced by a `PursuitLayer` if it is empty."""
    return _own_layer(past, index, is_causal, PursuitLayer)


def token_layer(past: Cache, index: int | None, is_causal: bool) -> TokenLayer:
    """Layer `index` of the cache, replaced by a `TokenLayer` if it is empty."""
    return _own_layer(past, index, is_causal, TokenLayer)


def _own_layer(past: Cache, index: int | None, is_causal: bool, kind: type[Own]) -> Own:
    cache: Any = past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past
    if index is None or not is_causal:
        raise InputError("a cache was given to a layer that is not causal; pass use_cache=False")
    while cache.layer_class_to_replicate is not None and len(cache.layers) <= index:
        cache.layers.append(cache.layer_class_to_replicate())
    layer = cache.layers[index]
    if isinstance(layer, kind):
        return layer
    if type(layer) is not DynamicLayer or layer.get_seq_length():
        what = f"a {type(layer).__name__}" if type(layer) is not DynamicLayer else "one filled without RPC-Attention"
        raise InputError(
            f"layer {index} of the cache is {what}; RPC-Attention needs a new DynamicCache without a sliding window: "
            "pass one, or use_cache=False"
        )
    cache.layers[index] = made = kind()
    return made
