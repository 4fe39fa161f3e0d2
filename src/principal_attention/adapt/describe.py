"""Description of a network's RPC-Attention, in the syntax of `--robustify`."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..modules import RPC, SelfAttention
from ..pursuit import Pursuit
from .models import attention_modules
from .named import ModelRef
from .robust import Robust


def describe(network: nn.Module) -> str | None:
    """RPC-Attention of a network, built in or added by `robustify`, as `preset=…,iterations=…,lam=…,layers=…,form=…`.

    Layers with different settings are separated by "; ". Returns None for a network without RPC-Attention.
    """
    modules = attention_modules(network)
    held = {layer: found for layer, module in enumerate(modules) if (found := _held(module)) is not None}
    if not held:
        return None
    groups: dict[tuple[str, str], list[int]] = {}
    for layer, (pursuit, form) in held.items():
        groups.setdefault((_words(pursuit.given()), form), []).append(layer)
    return "; ".join(
        f"{pursuit},layers={_layers(layers, len(modules))},form={form}" for (pursuit, form), layers in groups.items()
    )


def name_of(ref: ModelRef, network: nn.Module) -> str:
    """Name of a model in records, such as "deit+cleaned-4-1-all": the settings follow if `robustify` was applied."""
    put_in = [module for module in network.modules() if isinstance(module, Robust)]
    if not put_in or (ref.robustify is None and ref.library != "timm"):
        return ref.name
    pursuit, count = put_in[0].rpc_pursuit, len(attention_modules(network))
    layers = [layer for layer, module in enumerate(attention_modules(network)) if isinstance(module, Robust)]
    return f"{ref.name}+{pursuit.preset}-{pursuit.iterations}-{_plain(pursuit.lam)}-{_layers(layers, count)}"


def _held(module: nn.Module) -> tuple[Pursuit, str] | None:
    if isinstance(module, Robust):
        return module.rpc_pursuit, module.rpc_form
    if isinstance(module, SelfAttention) and isinstance(module.mechanism, RPC):
        return module.mechanism.pursuit, module.mechanism.form
    return None


def _words(fields: Mapping[str, Any]) -> str:
    first = {key: fields[key] for key in ("preset", "iterations", "lam")}
    return ",".join(f"{key}={_plain(x)}" for key, x in (first | dict(fields)).items())


def _plain(x: Any) -> str:
    return f"{x:g}" if isinstance(x, float) else str(x).lower() if isinstance(x, bool) else str(x)


def _layers(layers: list[int], count: int) -> str:
    if layers == list(range(count)):
        return "all"
    return "first" if layers == [0] else f"[{','.join(map(str, layers))}]"
