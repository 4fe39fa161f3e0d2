"""RPC-Attention in transformers: the attention implementation `"rpc"`, its masks, and its record in a model's config.

A model uses it after `robustify(model, …)`, after `from_pretrained(…, attn_implementation="rpc")`, and after
`from_pretrained` of a folder with a saved robustified model. The field `rpc` of its config holds the `Choice`.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from ..errors import InputError
from ..pursuit import Pursuit, PursuitCache, TokenPursuit
from ..sdpa import merge_masks
from .choice import Choice
from .decoding import TokenLayer, pursuit_layer, token_layer
from .masks import visible_keys
from .put import held_choice, put_in
from .registry import calls, is_known
from .robust import Robust

NAME = "rpc"
DEFAULT = Choice({0: Pursuit()}, "query")  # the paper's main setting, for a config without the field `rpc`


class CallsInterface(Robust):
    """Module whose forward calls transformers' `AttentionInterface`, and thereby `_attend` below."""

    rpc_before: str  # attention implementation to restore
    config: Any
    layer_idx: int | None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.config._attn_implementation != NAME:
            raise InputError(
                f"this model's attention was set to {self.config._attn_implementation!r} while it holds RPC-Attention; "
                "call pa.restore(model) first"
            )
        past = next((x for x in (*args, *kwargs.values()) if isinstance(x, Cache)), None)
        causal = getattr(self, "is_causal", False)
        if past is not None and isinstance(self.rpc_pursuit, Pursuit):
            kwargs["pursuit_cache"] = pursuit_layer(past, self.layer_idx, causal).lend()
        elif past is not None and isinstance(self.rpc_pursuit, TokenPursuit):
            kwargs["tokens"] = token_layer(past, self.layer_idx, causal)
        return super().forward(*args, **kwargs)


def record(model: nn.Module, modules: list[Any]) -> None:
    """Write the pursuits and the form of `modules` to the config of their model, and set the implementation "rpc"."""
    for config, members in owned(model, modules):
        held = [m for m in members if isinstance(m, CallsInterface)]
        for module in held:
            module.rpc_before = module.__dict__.get("rpc_before", config._attn_implementation)
        if (choice := held_choice(members)) is not None:
            config.rpc = choice.to_json()
            config.attn_implementation = NAME  # saved with the config; the private field below is not
            config._attn_implementation = NAME


def erase(model: nn.Module, modules: list[Any]) -> None:
    """Undo `record`. A model that was loaded with "rpc" gets the implementation "sdpa", transformers' default."""
    if not any(isinstance(m, CallsInterface) for m in modules):
        return
    for config, members in owned(model, modules):
        held = [m for m in members if isinstance(m, CallsInterface)]
        if held:
            config._attn_implementation = "sdpa" if held[0].rpc_before == NAME else held[0].rpc_before
            for name in ("rpc", "attn_implementation"):
                config.__dict__.pop(name, None)


def recorded(model: nn.Module, modules: list[Any]) -> Any:
    """The `Choice` in the model's config, as JSON and not yet checked; None if there is none."""
    return next((config.rpc for config, _ in owned(model, modules) if hasattr(config, "rpc")), None)


def owned(model: nn.Module, modules: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Configs of the outermost transformers models in `model`, each with the attention modules of that model.

    Layers are numbered within these models, so that the numbers are the same after saving and loading.
    """
    theirs = [m for m in modules if isinstance(m, CallsInterface) or calls(type(m), "ALL_ATTENTION_FUNCTIONS")]
    groups, counted = [], set[int]()
    for owner in (m for m in model.modules() if isinstance(m, PreTrainedModel)):
        inside = {id(m) for m in owner.modules()}
        members = [m for m in theirs if id(m) in inside and id(m) not in counted]
        if any(m.config is not owner.config for m in members):
            raise InputError(
                f"{type(owner).__name__} is made of models with configs of their own, and would not save the record of "
                "RPC-Attention; robustify one of those models, and save that one"
            )
        counted |= {id(m) for m in members}
        if members:
            groups.append((owner.config, members))
    if len(counted) < len(theirs):
        raise InputError(
            "this module is part of a transformers model, whose config records the layers of the whole model; pass "
            "the whole model and its layers, as in layers=[2]"
        )
    return groups


def _apply_config(model: PreTrainedModel) -> None:
    """Put the pursuits of its config, or the default, into a model created with `attn_implementation="rpc"`."""
    modules = [m for m in model.modules() if is_known(m) and not getattr(m, "is_cross_attention", False)]
    groups = owned(model, modules)
    if not groups:
        raise InputError(
            f'{type(model).__name__} was created with attn_implementation="rpc" and holds no attention that is '
            "known: register the class of its attention modules with principal_attention.adapt.register"
        )
    for config, members in groups:
        choice = Choice.from_json(config.rpc, len(members)) if hasattr(config, "rpc") else DEFAULT
        put_in([(member, CallsInterface) for member in members], choice)  # statistics come with the weights
    record(model, modules)


@functools.cache
def register() -> None:
    """Register `"rpc"` with transformers, once. Models get RPC-Attention in `post_init`, when their modules exist."""
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
    q_offset: Any = 0,  # an int; with a static cache, a tensor
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **kwargs: Any,
) -> Tensor | None:
    """Attention mask for `_attend`: the padding mask (B, N), or None, where only padding and causality apply.

    mu is computed from the padding mask, and causality is a flag. Other masks have four dimensions, as for "sdpa".
    """
    if mask_function is bidirectional_mask_function:
        compact = allow_is_bidirectional_skip
    else:  # a static cache has columns that are not filled yet
        ends = isinstance(q_offset, int) and q_offset + q_length == kv_length
        compact = mask_function is causal_mask_function and ends and allow_is_causal_skip
    if compact and kv_offset == 0 and (attention_mask is None or attention_mask.shape[-1] == kv_length):
        unpadded = attention_mask is None or (not torch.compiler.is_compiling() and bool(attention_mask.all()))
        return None if attention_mask is None or unpadded else attention_mask.bool()
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
    tokens: TokenLayer | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    rows, columns = query.shape[-2], key.shape[-2] + (0 if pursuit_cache is None else pursuit_cache.length)
    padding, mask = None, attention_mask
    if mask is not None and mask.ndim == 2:  # from `_mask`
        padding, mask = mask[:, None], None  # (B, 1, N)
    if not isinstance(module, CallsInterface):
        _check_plain(module)
        if mask is None and (causal or padding is not None):
            mask, _ = merge_masks(key, padding, None, causal, rows=rows, columns=columns)
        return sdpa_attention_forward(  # type: ignore[return-value]
            module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs
        )
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise InputError(
                f"{type(module).__name__} uses {name}, which RPC-Attention does not support; choose other layers"
            )
    if kwargs.get("output_attentions"):
        raise InputError(
            "output_attentions was given, but RPC-Attention has no attention matrix to return; "
            "call pa.restore(model) and use eager attention"
        )
    if mask is not None:  # a four-dimensional mask, from the caller or the model
        padding, triangular = visible_keys(mask, query, columns)
        if rows == columns > 1 and not torch.compiler.is_compiling():
            causal = triangular
    if pursuit_cache is not None:
        if not causal:
            raise InputError(
                "the mask lets tokens attend to later tokens, which a cache excludes; pass use_cache=False"
            )
        if mask is None and padding is not None:
            mask = padding[:, :, None]  # may hide more earlier tokens from the new rows than the cache's own padding
        padding = None if padding is None else padding[..., -key.shape[-2] :]
    stored: dict[str, Any] = {"cache": pursuit_cache} if tokens is None else {"tokens": tokens}
    out = module.rpc_attend(
        query, key, value, key_mask=padding, attn_mask=mask, is_causal=causal, dropout_p=dropout, scale=scaling,
        **stored,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _check_plain(module: Any) -> None:
    """Raise if the implementation "rpc" was set by hand in a model without pursuits, where it would have no effect."""
    if not hasattr(module.config, "rpc"):
        raise InputError(
            'the attention implementation is "rpc", but no layer has a pursuit: call pa.robustify(model, pursuit=…)'
        )
