"""RPC-Attention inside other people's modules, without touching their weights.

A chosen attention module keeps its identity, parameters, hooks and names; only its class becomes a subclass that
attends otherwise. Taking RPC-Attention out again is giving the old class back.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._sdpa import lean_allowed
from ..errors import InputError
from ..pursuit import Pursuit, rpc_attention
from .choice import Form


class Swapped(nn.Module):
    """Mixed in before a module's own class by `swap`."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(protocol)  # the class is made on the fly, so a pickle names its two parts
        return (_revive, type(self).__bases__, *made[2:])


class Robust(Swapped):
    """Attends with a pursuit; one subclass for each way that modules reach their attention."""

    rpc_pursuit: Pursuit
    rpc_form: Form

    @classmethod
    def refuse(cls, module: nn.Module) -> None:
        """Raise where `module` has something that RPC-Attention cannot stand in for."""

    @classmethod
    def has_queries(cls, module: nn.Module) -> bool:
        return True

    def rpc_attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if k.shape[-3] != q.shape[-3]:  # grouped queries: each head cleans its own copy of the shared keys
            k, v = (t.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3) for t in (k, v))
        if self.rpc_form == "symmetric" and q.shape != k.shape:
            raise InputError(
                f"the queries have shape {tuple(q.shape)} and the keys {tuple(k.shape)}: keys can stand for queries "
                "in self-attention only; use form='query'"
            )
        return rpc_attention(
            k, v, q=q if self.rpc_form == "query" else None, pursuit=self.rpc_pursuit,
            model_dim=k.shape[-3] * k.shape[-1], **options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        own, rpc = super().extra_repr(), f"rpc={self.rpc_pursuit}, form={self.rpc_form!r}"
        return f"{own}, {rpc}" if own else rpc


def swap(module: nn.Module, kind: type[Swapped], **attributes: Any) -> None:
    """Make `module` one of `kind` as well; the attributes, named rpc_…, go with it."""
    if not isinstance(module, Swapped):
        module.__class__ = _combined(kind, type(module))  # type: ignore[arg-type]
    for name, value in attributes.items():
        setattr(module, name, value)


def swap_back(module: nn.Module) -> None:
    if isinstance(module, Swapped):
        module.__class__ = type(module).__bases__[1]
        for name in [name for name in module.__dict__ if name.startswith("rpc_")]:
            del module.__dict__[name]


@cache
def _combined(kind: type[Swapped], original: type[nn.Module]) -> type[Swapped]:
    return type(f"RPC{original.__name__}", (kind, original), {"__module__": original.__module__})


def _revive(kind: type[Swapped], original: type[nn.Module]) -> nn.Module:
    made = _combined(kind, original)  # type: ignore[arg-type]
    return made.__new__(made)


def names_in_forward(module: type[nn.Module]) -> tuple[str, ...]:
    """The functions and attributes that a class's forward mentions."""
    return getattr(getattr(module.forward, "__code__", None), "co_names", ())


class CallsSDPA(Robust):
    """A module whose forward calls `scaled_dot_product_attention` once: timm's, or a registered one of the user's."""

    # timm's modules ask this to choose the fused call; as a property it hides the instance's own answer.
    fused_attn = property(lambda self: True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        intercept = _Intercept(self)
        with intercept:  # not "as": torch.compile follows the object it was made as
            out = super().forward(*args, **kwargs)
        if intercept.calls != 1:
            raise InputError(
                f"{type(self).__bases__[1].__name__}.forward called scaled_dot_product_attention {intercept.calls} "
                "times; RPC-Attention stands in for exactly one call: use pa.rpc_attention in the module itself"
            )
        return out


class _Intercept(TorchFunctionMode):
    def __init__(self, module: CallsSDPA):
        self.module, self.calls = module, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        return self._attend(*args, **(kwargs or {}))

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        key_mask, triangular = visible_keys(attn_mask, query, key)
        return self.module.rpc_attend(
            query, key, value, key_mask=key_mask, attn_mask=attn_mask,
            is_causal=is_causal or triangular, dropout_p=dropout_p, scale=scale,
        )  # fmt: skip


def visible_keys(mask: Tensor | None, q: Tensor, k: Tensor) -> tuple[Tensor | None, bool]:
    """What a mask of `scaled_dot_product_attention` says about padding and causality, which mu must know.

    Returns the boolean mask of keys that some row may see, ready to be a `key_mask`, and whether no row sees a later
    key. The second needs a look at the values, so under a compiler it is False and the caller's flag decides.
    """
    if mask is None:
        return None, False
    seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    shared = seen.shape[-2] == 1  # all rows see the same keys
    square = q.shape[-2] == k.shape[-2] > 1 and not shared
    triangular = square and lean_allowed() and not bool(seen.triu(1).any())
    keys = seen[..., 0, :] if shared else seen.any(-2)
    if keys.shape[-1] == 1:
        keys = keys.expand(*keys.shape[:-1], k.shape[-2])
    if keys.ndim > 1:
        keys = keys.reshape((1,) * (k.ndim - 1 - keys.ndim) + keys.shape)
    return keys, triangular
