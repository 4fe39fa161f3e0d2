"""Attention seen as kernel PCA: RPC-Attention, Scaled Attention, kernel PCA and Principal Component Pursuit."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .installs import on_import as _on_import
from .installs import timm as _timm
from .installs import torchvision as _torchvision
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import adapt as adapt
    from .adapt import restore as restore
    from .adapt import robustify as robustify
    from .attention import kernel_pca_attention as kernel_pca_attention
    from .attention import scaled_attention as scaled_attention
    from .attention import symmetric_attention as symmetric_attention
    from .errors import ConvergenceWarning as ConvergenceWarning
    from .errors import DtypeError as DtypeError
    from .errors import InputError as InputError
    from .errors import NonFiniteError as NonFiniteError
    from .errors import RankError as RankError
    from .kernel_pca import KernelPCA as KernelPCA
    from .modules import RPC as RPC
    from .modules import KernelPCAValues as KernelPCAValues
    from .modules import Scaled as Scaled
    from .modules import SelfAttention as SelfAttention
    from .modules import Softmax as Softmax
    from .modules import Symmetric as Symmetric
    from .pcp import PCPResult as PCPResult
    from .pcp import outlier_pursuit as outlier_pursuit
    from .pcp import principal_component_pursuit as principal_component_pursuit
    from .pursuit import PRESETS as PRESETS
    from .pursuit import Pursuit as Pursuit
    from .pursuit import PursuitCache as PursuitCache
    from .pursuit import PursuitTrace as PursuitTrace
    from .pursuit import Temperature as Temperature
    from .pursuit import TokenPursuit as TokenPursuit
    from .pursuit import TokenReweighting as TokenReweighting
    from .pursuit import rpc_attention as rpc_attention
    from .pursuit import rpc_attention_reference as rpc_attention_reference
    from .pursuit import surrogate_gradients as surrogate_gradients
    from .robust_pca import RobustPCA as RobustPCA
    from .vision.certify import MaskedCertifier as MaskedCertifier

# Module of each public name. Modules are imported on first access, so that the command line can answer without torch.
_HOMES = {
    "attention": ("kernel_pca_attention", "scaled_attention", "symmetric_attention"),
    "errors": ("ConvergenceWarning", "DtypeError", "InputError", "NonFiniteError", "RankError"),
    "kernel_pca": ("KernelPCA",),
    "modules": ("RPC", "KernelPCAValues", "Scaled", "SelfAttention", "Softmax", "Symmetric"),
    "pcp": ("PCPResult", "outlier_pursuit", "principal_component_pursuit"),
    "pursuit": (
        "PRESETS", "Pursuit", "PursuitCache", "PursuitTrace", "Temperature", "TokenPursuit", "TokenReweighting",
        "rpc_attention", "rpc_attention_reference", "surrogate_gradients",
    ),
}  # fmt: skip
# Names whose modules may need packages other than torch; a star import leaves them out.
_MORE = {"robust_pca": ("RobustPCA",), "adapt": ("restore", "robustify"), "vision.certify": ("MaskedCertifier",)}
_PLACE = {name: home for home, names in (_HOMES | _MORE).items() for name in names}

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
    "Temperature",
    "TokenPursuit",
    "TokenReweighting",
    "kernel_pca_attention",
    "outlier_pursuit",
    "principal_component_pursuit",
    "rpc_attention",
    "rpc_attention_reference",
    "scaled_attention",
    "surrogate_gradients",
    "symmetric_attention",
]


def __getattr__(name: str) -> Any:
    if name in (*_HOMES, *_MORE):
        return import_module(f".{name}", __name__)
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f".{_PLACE[name]}", __name__), name)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"{name} needs {missing.name}: pip install 'principal-attention[report]'", name=missing.name
        ) from missing
    globals()[name] = found  # later accesses do not call __getattr__
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACE, *_HOMES, *_MORE})


def _teach_transformers() -> None:
    """Register `attn_implementation="rpc"` with transformers, so that saved robustified models load as well."""
    import_module(".adapt.models", __name__).huggingface()


def _after_transformers(execute: Any, module: Any) -> None:
    execute(module)
    _teach_transformers()


if "transformers.modeling_utils" in sys.modules:
    _teach_transformers()
if "timm.models._factory" in sys.modules:
    _timm.watch_creation(sys.modules["timm.models._factory"])
_on_import.watch(
    {
        "torchvision": _torchvision.execute,
        "transformers.modeling_utils": _after_transformers,
        "timm.models._factory": _timm.execute,
    }
)
