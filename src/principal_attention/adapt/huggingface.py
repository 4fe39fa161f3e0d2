"""RPC-Attention in transformers: the implementation `"rpc"`, its masks, and the choice kept in a model's config.

A model runs on it in three ways: `robustify(model, …)`; `from_pretrained(…, attn_implementation="rpc")`; and
`from_pretrained` of a folder that a robustified model was saved to. Its config holds the choice under `rpc`.
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
from ..pursuit import Pursuit, PursuitCache
from ..sdpa import merge_masks
from .choice import Choice
from .decoding import pursuit_layer
from .masks import visible_keys
from .registry import calls, is_known
from .robust import Robust, swap

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
            kwargs["pursuit_cache"] = pursuit_layer(past, self.layer_idx, getattr(self, "is_causal", False)).lend()
        return super().forward(*args, **kwargs)


def record(model: nn.Module, modules: list[Any]) -> None:
    """Write the choice that these modules hold into the config of the model they belong to, and switch it on."""
    for config, members in owned(model, modules):
        held = {i: m for i, m in enumerate(members) if isinstance(m, CallsInterface)}
        for module in held.values():
            module.rpc_before = module.__dict__.get("rpc_before", config._attn_implementation)
        if held:
            first = next(iter(held.values()))
            config.rpc = Choice({i: m.rpc_pursuit for i, m in held.items()}, first.rpc_form).to_json()
            config.attn_implementation = NAME  # saved with the config, unlike the private field below
            config._attn_implementation = NAME


def erase(model: nn.Module, modules: list[Any]) -> None:
    """Undo `record`; a model that was loaded with "rpc" never had another, and goes to transformers' default."""
    if not any(isinstance(m, CallsInterface) for m in modules):
        return
    for config, members in owned(model, modules):
        held = [m for m in members if isinstance(m, CallsInterface)]
        if held:
            config._attn_implementation = "sdpa" if held[0].rpc_before == NAME else held[0].rpc_before
            for name in ("rpc", "attn_implementation"):
                config.__dict__.pop(name, None)


def recorded(model: nn.Module, modules: list[Any]) -> Any:
    return next((config.rpc for config, _ in owned(model, modules) if hasattr(config, "rpc")), None)


def owned(model: nn.Module, modules: list[Any]) -> list[tuple[Any, list[Any]]]:
    """The configs of the outermost transformers models in `model`, each with the attention modules it counts.

    Only there does the number of a layer mean the same when the model is saved and loaded.
    """
    theirs = [m for m in modules if isinstance(m, CallsInterface) or calls(type(m), "ALL_ATTENTION_FUNCTIONS")]
    groups, counted = [], set[int]()
    for owner in (m for m in model.modules() if isinstance(m, PreTrainedModel)):
        inside = {id(m) for m in owner.modules()}
        members = [m for m in theirs if id(m) in inside and id(m) not in counted]
        if any(m.config is not owner.config for m in members):
            raise InputError(
                f"{type(owner).__name__} is made of models with configs of their own, and would lose the choice when "
                "saved: robustify one of those models, and save that"
            )
        counted |= {id(m) for m in members}
        if members:
            groups.append((owner.config, members))
    if len(counted) < len(theirs):
        raise InputError(
            "this is a part of a transformers model, whose config counts the layers of the whole: pass the model "
            "itself, and say which layers, as in layers=[2]"
        )
    return groups


def _apply_config(model: PreTrainedModel) -> None:
    """Give a model made with `attn_implementation="rpc"` the pursuits its config records, or the default."""
    modules = [m for m in model.modules() if is_known(m) and not getattr(m, "is_cross_attention", False)]
    groups = owned(model, modules)
    if not groups:
        raise InputError(
            f'{type(model).__name__} was asked for with attn_implementation="rpc" and holds no attention that is '
            "known: register its attention module's class with principal_attention.adapt.register"
        )
    for config, members in groups:
        choice = Choice.from_json(config.rpc, len(members)) if hasattr(config, "rpc") else DEFAULT
        for index, pursuit in choice.pursuits.items():
            swap(members[index], CallsInterface, rpc_pursuit=pursuit, rpc_form=choice.form)
    record(model, modules)


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
    """Padding alone, (B, N), where there is nothing else, since mu must know it and causality is a flag.

    Anything more is a mask of four dimensions, as `sdpa` makes it.
    """
    if mask_function is bidirectional_mask_function:
        compact = allow_is_bidirectional_skip
    else:  # not so with a static cache, whose last columns are not filled yet
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
            raise InputError(f"{type(module).__name__} uses {name}, which RPC-Attention does not have")
    if kwargs.get("output_attentions"):
        raise InputError("RPC-Attention makes no attention matrix to return; pa.restore(model) and use eager attention")
    if mask is not None:  # of the caller's own, or a model's unusual one
        padding, triangular = visible_keys(mask, query, columns)
        if rows == columns > 1 and not torch.compiler.is_compiling():
            causal = triangular
    if pursuit_cache is not None:
        if not causal:
            raise InputError("this mask lets rows see later keys, so earlier rows change with them: use_cache=False")
        if mask is None and padding is not None:
            mask = padding[:, :, None]  # the cache knows its own padding; more may be hidden from the new rows
        padding = None if padding is None else padding[..., -key.shape[-2] :]
    out = module.rpc_attend(
        query, key, value, key_mask=padding, attn_mask=mask, is_causal=causal, dropout_p=dropout, scale=scaling,
        cache=pursuit_cache,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _check_plain(module: Any) -> None:
    """A layer that was not chosen; in a model where none was, "rpc" was set by hand and would do nothing."""
    if not hasattr(module.config, "rpc"):
        raise InputError('attention was set to "rpc" and no layer has a pursuit: call pa.robustify(model, pursuit=…)')
