"""Attention seen as kernel PCA: RPC-Attention, Scaled Attention, kernel PCA and Principal Component Pursuit."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .attention import kernel_pca_attention, scaled_attention, symmetric_attention
from .errors import ConvergenceWarning, DtypeError, InputError, NonFiniteError, RankError
from .installs import on_import as _on_import
from .installs import torchvision as _torchvision
from .kernel_pca import KernelPCA
from .modules import RPC, KernelPCAValues, Scaled, SelfAttention, Softmax, Symmetric
from .pcp import PCPResult, principal_component_pursuit
from .pursuit import (
    PRESETS,
    Pursuit,
    PursuitCache,
    PursuitTrace,
    rpc_attention,
    rpc_attention_reference,
    surrogate_gradients,
)
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import adapt as adapt
    from .adapt import restore as restore
    from .adapt import robustify as robustify
    from .robust_pca import RobustPCA as RobustPCA

# Names that may need more than torch come in when they are first asked for; not in __all__, so a star import works.
_LAZY = {"RobustPCA": "robust_pca", "restore": "adapt", "robustify": "adapt"}

__all__ = [
    "PRESETS",
    "RPC",
    "ConvergenceWarning",
    "DtypeError",
    "InputError",
    "KernelPCA",
    "KernelPCAValues",
    "NonFiniteError",
    "PCPResult",
    "Pursuit",
    "PursuitCache",
    "PursuitTrace",
    "RankError",
    "Scaled",
    "SelfAttention",
    "Softmax",
    "Symmetric",
    "kernel_pca_attention",
    "principal_component_pursuit",
    "rpc_attention",
    "rpc_attention_reference",
    "scaled_attention",
    "surrogate_gradients",
    "symmetric_attention",
]


def __getattr__(name: str) -> Any:
    if name == "adapt":
        return import_module(".adapt", __name__)
    if name in _LAZY:
        try:
            return getattr(import_module(f".{_LAZY[name]}", __name__), name)
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"{name} needs {missing.name}: pip install 'principal-attention[report]'", name=missing.name
            ) from missing
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "adapt"})


def _teach_transformers() -> None:
    """`attn_implementation="rpc"`, and saved models that hold RPC-Attention."""
    import_module(".adapt.models", __name__).huggingface()


def _after_transformers(execute: Any, module: Any) -> None:
    execute(module)
    _teach_transformers()


if "transformers.modeling_utils" in sys.modules:
    _teach_transformers()
_on_import.watch({"torchvision": _torchvision.execute, "transformers.modeling_utils": _after_transformers})
