"""RPC-Attention in the `SelfAttention` of this package, if its mechanism is softmax, symmetric or RPC."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import InputError
from ..modules import RPC, Mechanism, SelfAttention, Softmax, Symmetric
from ..pursuit import Pursuit, rpc_attention
from .choice import Form, Setting
from .condemned import Suppression
from .robust import Robust


@dataclass(frozen=True, repr=False)
class _InPlaceOf(Mechanism):
    """Mechanism with the projections of the mechanism `original`, and shown as that one."""

    original: Mechanism

    @property
    def needs(self) -> str:
        return self.original.needs

    def __repr__(self) -> str:
        return repr(self.original)


@dataclass(frozen=True, repr=False)
class _Pursued(_InPlaceOf):
    """RPC-Attention."""

    pursuit: Pursuit
    form: Form

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return rpc_attention(
            parts["k"], parts["v"], q=parts.get("q") if self.form == "query" else None, pursuit=self.pursuit,
            model_dim=dim, recompute=getattr(self.original, "recompute", False), **options,
        )  # fmt: skip


@dataclass(frozen=True, repr=False)
class _Defended(_InPlaceOf):
    """Attention with the setting of `module`: a token pursuit or a control."""

    module: Robust

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return self.module.rpc_attend(parts.get("q", parts["k"]), parts["k"], parts["v"], **options)


class HoldsMechanism(Robust):
    """A `SelfAttention` whose forward uses RPC-Attention; its own mechanism is kept for `restore`."""

    @property
    def mechanism(self) -> Mechanism:
        original, setting = self.__dict__["mechanism"], self.rpc_pursuit
        return _Pursued(original, setting, self.rpc_form) if isinstance(setting, Pursuit) else _Defended(original, self)

    @classmethod
    def refuse(cls, module: nn.Module) -> None:
        super().refuse(module)
        assert isinstance(module, SelfAttention)
        mechanism = module.__dict__["mechanism"]
        if not isinstance(mechanism, Softmax | Symmetric | RPC):
            raise InputError(
                f"the layer computes {mechanism}; RPC-Attention replaces Softmax, Symmetric or RPC only, choose other "
                "layers"
            )

    @classmethod
    def refuse_setting(cls, module: nn.Module, setting: Setting | Suppression) -> None:
        if isinstance(module.__dict__["mechanism"], RPC) and not isinstance(setting, Pursuit):
            raise InputError(
                f"the layer was made with {module.__dict__['mechanism']}, which is not combined with token pursuit, "
                "reweighting or a temperature; use a model with Softmax or Symmetric"
            )

    @classmethod
    def has_queries(cls, module: nn.Module) -> bool:
        return "q" in module.__dict__["mechanism"].needs
