"""RPC-Attention in attention modules of other libraries, without changing their weights.

`swap` changes the class of a module to a subclass whose forward uses RPC-Attention; the module keeps its identity,
parameters, hooks and names. `swap_back` changes the class back.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..errors import InputError
from ..pursuit import Pursuit, rpc_attention
from . import statistics
from .choice import Form, Setting
from .condemned import Suppression
from .defend import defended
from .masks import visible_keys


class Swapped(nn.Module):
    """Base class of the mixins that `swap` combines with a module's own class."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(protocol)  # the combined class cannot be imported; a pickle names its two bases
        return (_revive, _parts(self), *made[2:])


class Answers:
    """Class attribute with a fixed value; the instance's own value is kept for `swap_back`."""

    def __init__(self, value: Any):
        self.value = value

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name


class Robust(Swapped):
    """Base class of the mixins with RPC-Attention; one subclass for each way in which modules call attention."""

    rpc_pursuit: Setting | Suppression
    rpc_form: Form

    @classmethod
    def refuse(cls, module: nn.Module) -> None:
        """Raise `InputError` if RPC-Attention cannot replace this module's attention."""
        if "forward" in vars(module):
            raise InputError(
                f"the forward method of {type(module).__name__} was replaced on the instance, as accelerate's hooks "
                "do; call robustify before that"
            )
        _combined(cls, _parts(module)[1] if isinstance(module, Swapped) else type(module))  # raises now if at all

    @classmethod
    def refuse_setting(cls, module: nn.Module, setting: Setting | Suppression) -> None:
        """Raise `InputError` if this module's attention cannot be replaced by this setting."""

    @classmethod
    def has_queries(cls, module: nn.Module) -> bool:
        return True

    def rpc_attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if not isinstance(self.rpc_pursuit, Pursuit):
            return defended(self, q, k, v, **options)
        heads = q.shape[-3] if q.ndim > 3 else 1
        if q.ndim > 3 and k.shape[-3] != heads:  # grouped-query attention: each query head gets a copy of its keys
            k, v = (t.repeat_interleave(heads // k.shape[-3], dim=-3) for t in (k, v))
        if self.rpc_form == "symmetric" and q.shape != k.shape:
            raise InputError(
                f"the queries have shape {tuple(q.shape)} and the keys {tuple(k.shape)}; form='symmetric' needs equal "
                "shapes, use form='query'"
            )
        return rpc_attention(
            k, v, q=q if self.rpc_form == "query" else None, pursuit=self.rpc_pursuit,
            model_dim=int(heads * k.shape[-1]), **options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        own, rpc = super().extra_repr(), f"rpc={self.rpc_pursuit}"
        if isinstance(self.rpc_pursuit, Pursuit):
            rpc += f", form={self.rpc_form!r}"
        elif statistics.width_of(self) is not None:
            rpc += ", calibrated"
        return f"{own}, {rpc}" if own else rpc


def swap(module: nn.Module, kind: type[Swapped], **attributes: Any) -> None:
    """Change the class of `module` to a subclass of `kind` and of its own class, and set `attributes`."""
    if not isinstance(module, Swapped):
        module.__class__ = _combined(kind, type(module))
    for name, value in attributes.items():
        setattr(module, name, value)


def swap_back(module: nn.Module) -> None:
    """Undo `swap`; do nothing to other modules."""
    if isinstance(module, Swapped):
        module.__class__ = _parts(module)[1]
        for name in ("rpc_pursuit", "rpc_form", "rpc_before", "rpc_penalties", "rpc_layer"):
            module.__dict__.pop(name, None)
        statistics.remove(module)


def setting_of(module: nn.Module) -> Setting | None:
    """Setting that `robustify` gave to the module; None for other modules, and for those after a `TokenPursuit`."""
    given = module.rpc_pursuit if isinstance(module, Robust) else None
    return None if isinstance(given, Suppression) else given


def mixed_in(module: Swapped) -> Any:
    """The mixin class that `swap` gave to the module."""
    return _parts(module)[0]


def _parts(module: nn.Module) -> tuple[Any, Any]:
    """The mixin class and the module's own class."""
    if len(type(module).__bases__) != 2:
        raise InputError(
            f"the class of a robustified module was changed again, to {type(module).__name__}, as by a "
            "parametrization or another library; undo that first"
        )
    return type(module).__bases__  # type: ignore[return-value]


_MADE: dict[Any, Any] = {}


def _combined(kind: Any, original: Any) -> Any:
    if (kind, original) not in _MADE:
        made = type(f"RPC{original.__name__}", (kind, original), {"__module__": original.__module__})
        _MADE[kind, original] = made
    return _MADE[kind, original]


def _revive(kind: Any, original: Any) -> Any:
    made = _combined(kind, original)
    return made.__new__(made)


class CallsSDPA(Robust):
    """Module of timm or of a registered class whose forward calls `scaled_dot_product_attention` once."""

    fused_attn = Answers(True)  # makes modules of timm call scaled_dot_product_attention

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        intercept = _Intercept(self)
        with intercept:  # without "as", because torch.compile traces the object created above
            out = super().forward(*args, **kwargs)
        if intercept.calls != 1:
            raise InputError(
                f"{_parts(self)[1].__name__}.forward called scaled_dot_product_attention {intercept.calls} "
                "times; RPC-Attention replaces exactly one call, use pa.rpc_attention in the module itself"
            )
        return out


class _Intercept(TorchFunctionMode):
    """Replaces calls of `scaled_dot_product_attention` by RPC-Attention, and counts them."""

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
        key_mask, triangular = visible_keys(attn_mask, query, key.shape[-2])
        return self.module.rpc_attend(
            query, key, value, key_mask=key_mask, attn_mask=attn_mask,
            is_causal=is_causal or triangular, dropout_p=dropout_p, scale=scale,
        )  # fmt: skip
