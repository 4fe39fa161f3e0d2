"""RPC-Attention in transformers: the implementation `"rpc"`, its masks, and the choice kept in a model's config.

A model runs on it in three ways: `robustify(model, …)`; `from_pretrained(…, attn_implementation="rpc")`; and
`from_pretrained` of a folder that a robustified model was saved to. Its config holds the choice under `rpc`.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from .._sdpa import merge_masks
from ..cache import PursuitCache
from ..errors import InputError
from ..pursuit import Pursuit
from .choice import Choice
from .swap import Robust, names_in_forward, swap, swap_back, visible_keys

NAME = "rpc"
DEFAULT = Choice({0: Pursuit()}, "query")  # the paper's main setting, where a config says nothing


class CallsInterface(Robust):
    """A module whose forward goes through `AttentionInterface`; what it hands over ends up in `_attend` below."""

    rpc_before: str  # the implementation to go back to
    config: Any
    layer_idx: int | None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.config._attn_implementation != NAME:
            raise InputError(
                f"this model's attention was set to {self.config._attn_implementation!r} while it holds RPC-Attention; "
                "call pa.restore(model) first"
            )
        past = next((x for x in (*args, *kwargs.values()) if isinstance(x, Cache)), None)
        if past is not None:
            kwargs["pursuit_cache"] = _layer_of(past, self).pursuit
        return super().forward(*args, **kwargs)


def calls_interface(module: nn.Module) -> bool:
    """Whether a module's own forward hands q, k and v of one sequence to transformers' attention interface."""
    crossing = getattr(module, "is_cross_attention", False) or "Cross" in type(module).__name__
    return "ALL_ATTENTION_FUNCTIONS" in names_in_forward(type(module)) and not crossing


def record(modules: list[nn.Module]) -> None:
    """Write the choice that these modules hold into their configs, and switch the configs to it."""
    for config, members in _by_config(modules):
        held = {i: m for i, m in enumerate(members) if isinstance(m, CallsInterface)}
        for module in held.values():
            module.rpc_before = module.__dict__.get("rpc_before", config._attn_implementation)
        if held:
            first = next(iter(held.values()))
            config.rpc = Choice({i: m.rpc_pursuit for i, m in held.items()}, first.rpc_form).to_json()
            config.attn_implementation = NAME  # saved with the config, unlike the private field below
            config._attn_implementation = NAME


def erase(modules: list[nn.Module]) -> None:
    for config, members in _by_config(modules):
        held = [m for m in members if isinstance(m, CallsInterface)]
        if held:
            before = held[0].rpc_before
            config._attn_implementation = "sdpa" if before == NAME else before
            for name in ("rpc", "attn_implementation"):
                config.__dict__.pop(name, None)
        for module in held:
            swap_back(module)


def recorded(modules: list[nn.Module]) -> dict[str, Any] | None:
    return next((config.rpc for config, _ in _by_config(modules) if hasattr(config, "rpc")), None)


def _by_config(modules: list[nn.Module]) -> list[tuple[Any, list[nn.Module]]]:
    """Towers of a composite model have configs of their own, and layers are numbered within each."""
    groups: dict[int, tuple[Any, list[nn.Module]]] = {}
    for module in modules:
        groups.setdefault(id(module.config), (module.config, []))[1].append(module)
    return list(groups.values())


def _apply_config(model: PreTrainedModel) -> None:
    """Give a model made with `attn_implementation="rpc"` the pursuits its config records, or the default."""
    found: list[Any] = [m for m in model.modules() if isinstance(m, CallsInterface) or calls_interface(m)]
    modules = [m for m in found if m.config._attn_implementation == NAME]
    if not modules:
        raise InputError(f"{type(model).__name__} has no self-attention that goes through transformers' interface")
    for config, members in _by_config(modules):
        choice = Choice.from_json(config.rpc, len(members)) if hasattr(config, "rpc") else DEFAULT
        for index, pursuit in choice.pursuits.items():
            swap(members[index], CallsInterface, rpc_pursuit=pursuit, rpc_form=choice.form)
    record(modules)


@functools.cache
def register() -> None:
    """Make `"rpc"` known to transformers, once. `post_init` is where a new model has its modules."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
    original = PreTrainedModel.post_init

    @functools.wraps(original)
    def post_init(self: PreTrainedModel) -> None:
        original(self)
        if getattr(self.config, "_attn_implementation", None) == NAME:
            _apply_config(self)

    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,  # an int, or a tensor with a static cache
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **kwargs: Any,
) -> Tensor | None:
    """Padding alone, (B, 1, 1, N): mu must know it, and causality is a flag. Anything unusual is as in `sdpa`."""
    if mask_function is bidirectional_mask_function:
        compact = allow_is_bidirectional_skip
    else:  # not so with a static cache, whose last columns are not filled yet
        ends = isinstance(q_offset, int) and q_offset + q_length == kv_length
        compact = mask_function is causal_mask_function and ends and allow_is_causal_skip
    if compact and kv_offset == 0 and (attention_mask is None or attention_mask.shape[-1] == kv_length):
        unpadded = attention_mask is None or (not torch.compiler.is_compiling() and bool(attention_mask.all()))
        return None if attention_mask is None or unpadded else attention_mask.bool()[:, None, None, :]
    return sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
        allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **kwargs,
    )  # fmt: skip


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    pursuit_cache: PursuitCache | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    rows, columns = query.shape[-2], key.shape[-2] + (0 if pursuit_cache is None else pursuit_cache.length)
    compact = attention_mask is not None and attention_mask.shape[-2] == 1
    if not isinstance(module, CallsInterface):  # a layer that was not chosen
        if causal and rows > 1 and (attention_mask is None or compact):
            padding = None if attention_mask is None else attention_mask[..., 0, :]
            attention_mask, _ = merge_masks(key, padding, None, True, rows=rows, columns=columns)
        return sdpa_attention_forward(  # type: ignore[return-value]
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs
        )
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise InputError(f"{type(module).__name__} uses {name}, which RPC-Attention does not have")
    if kwargs.get("output_attentions"):
        raise InputError("RPC-Attention makes no attention matrix to return; pa.restore(model) and use eager attention")
    key_mask, triangular = visible_keys(attention_mask, query, key)
    if key_mask is not None:
        key_mask = key_mask[..., -key.shape[-2] :]  # the cache remembers the rest
    if attention_mask is not None and not compact and rows == columns and not torch.compiler.is_compiling():
        causal = triangular  # a mask of the caller's own may let rows see later keys
    if pursuit_cache is not None and not causal:
        raise InputError("this mask lets rows see later keys, so earlier rows change with them: pass use_cache=False")
    out = module.rpc_attend(
        query, key, value, key_mask=key_mask, attn_mask=None if compact else attention_mask,
        is_causal=causal, dropout_p=dropout, scale=scaling, cache=pursuit_cache,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


class PursuitLayer(DynamicLayer):
    """A layer of transformers' cache that holds the pursuit's own: every pass keeps its keys, values are kept once."""

    def __init__(self) -> None:
        super().__init__()
        self.pursuit = PursuitCache()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Only the new rows: `rpc_attention` appends them to what it keeps itself."""
        self.is_initialized = True
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


def _layer_of(past: Cache, module: CallsInterface) -> PursuitLayer:
    """This module's layer of the cache, turned into a `PursuitLayer` while it is still empty."""
    cache: Any = past.self_attention_cache if isinstance(past, EncoderDecoderCache) else past
    index = module.layer_idx
    if index is None or not getattr(module, "is_causal", False):
        raise InputError("RPC-Attention caches causal layers only: pass use_cache=False")
    while cache.layer_class_to_replicate is not None and len(cache.layers) <= index:
        cache.layers.append(cache.layer_class_to_replicate())
    layer = cache.layers[index]
    if isinstance(layer, PursuitLayer):
        return layer
    if type(layer) is not DynamicLayer or layer.get_seq_length():
        what = f"a {type(layer).__name__}" if type(layer) is not DynamicLayer else "one filled without RPC-Attention"
        raise InputError(
            f"layer {index} of the cache is {what}; RPC-Attention needs a new DynamicCache, since every pass keeps "
            "its own keys: pass use_cache=False or cache_implementation='dynamic'"
        )
    cache.layers[index] = PursuitLayer()
    return cache.layers[index]
