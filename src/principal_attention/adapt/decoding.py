"""Generation in transformers: the pursuit's cache as a layer of theirs.

A plain layer keeps all keys and values and hands them out again. A pursuit changes the keys pass by pass, so
`PursuitCache` keeps each pass's own, and the layer only has to follow what generation does to a cache: beams are
reordered, batches selected and repeated, drafted tokens cropped.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache

from ..errors import InputError
from ..pursuit import PursuitCache


class PursuitLayer(DynamicLayer):
    """A layer of transformers' cache that holds the pursuit's own: every pass keeps its keys, values are kept once."""

    def __init__(self) -> None:
        super().__init__()
        self.pursuit, self._lent = PursuitCache(), False

    def lend(self) -> PursuitCache:
        """To a layer with RPC-Attention, whose forward calls `update` next."""
        self._lent = True
        return self.pursuit

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Only the new rows: `rpc_attention` appends them to what it keeps itself."""
        if not self._lent:
            raise InputError(
                "this cache was filled with RPC-Attention and is now given to a layer without: take a new one"
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
        """Stays where it is."""

    prefetch = offload


def pursuit_layer(past: Cache, index: int | None, is_causal: bool) -> PursuitLayer:
    """A module's layer of the cache, turned into a `PursuitLayer` while it is still empty."""
    cache: Any = past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past
    if index is None or not is_causal:
        raise InputError("RPC-Attention caches causal layers only: pass use_cache=False")
    while cache.layer_class_to_replicate is not None and len(cache.layers) <= index:
        cache.layers.append(cache.layer_class_to_replicate())
    layer = cache.layers[index]
    if isinstance(layer, PursuitLayer):
        return layer
    if type(layer) is not DynamicLayer or layer.get_seq_length():
        what = f"a {type(layer).__name__}" if type(layer) is not DynamicLayer else "one filled without RPC-Attention"
        raise InputError(
            f"layer {index} of the cache is {what}; RPC-Attention needs a new DynamicCache without a window, since "
            "every pass keeps its own keys: pass use_cache=False, or such a cache"
        )
    cache.layers[index] = PursuitLayer()
    return cache.layers[index]
