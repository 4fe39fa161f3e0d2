"""Description of a network's RPC-Attention or token pursuit, in the syntax of `--robustify`."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..modules import RPC, SelfAttention
from ..pursuit import Pursuit, TokenPursuit
from .choice import Setting
from .models import attention_modules
from .named import ModelRef
from .robust import Robust, setting_of
from .statistics import width_of


def describe(network: nn.Module) -> str | None:
    """RPC-Attention of a network, built in or added by `robustify`, as `preset=…,iterations=…,lam=…,layers=…,form=…`.

    Layers with different settings are separated by "; ". "(calibrated)" follows a token pursuit with statistics of
    clean keys. Returns None for a network without any.
    """
    modules = attention_modules(network)
    held = {layer: found for layer, module in enumerate(modules) if (found := _held(module)) is not None}
    if not held:
        return None
    groups: dict[tuple[str, str], list[int]] = {}
    for layer, (setting, form) in held.items():
        ending = f",form={form}" if isinstance(setting, Pursuit) else ""
        ending += " (calibrated)" if width_of(modules[layer]) is not None else ""
        groups.setdefault((_words(setting.given()), ending), []).append(layer)
    return "; ".join(
        f"{setting},layers={_layers(layers, len(modules))}{ending}" for (setting, ending), layers in groups.items()
    )


def name_of(ref: ModelRef, network: nn.Module) -> str:
    """Name of a model in records, such as "deit+cleaned-4-1-all": the settings follow if `robustify` was applied."""
    modules = attention_modules(network)
    held = {layer: found for layer, module in enumerate(modules) if (found := setting_of(module)) is not None}
    if not held or (ref.robustify is None and ref.library != "timm"):
        return ref.name
    first = next(iter(held))
    return f"{ref.name}+{_short(held[first], modules[first])}-{_layers(list(held), len(modules))}"


def _short(setting: Setting, module: nn.Module) -> str:
    if isinstance(setting, Pursuit):
        return f"{setting.preset}-{setting.iterations}-{_plain(setting.lam)}"
    if isinstance(setting, TokenPursuit):
        statistics = "own" if width_of(module) is None else "calibrated"
        return f"tokens-{_plain(setting.quantile)}-{_plain(setting.strength)}-{statistics}"
    return "-".join(map(_plain, setting.given().values()))


def _held(module: nn.Module) -> tuple[Setting, str] | None:
    if isinstance(module, Robust):
        setting = setting_of(module)
        return None if setting is None else (setting, module.rpc_form)
    if isinstance(module, SelfAttention) and isinstance(module.mechanism, RPC):
        return module.mechanism.pursuit, module.mechanism.form
    return None


def _words(fields: Mapping[str, Any]) -> str:
    first = {key: fields[key] for key in ("preset", "iterations", "lam") if key in fields}
    return ",".join(f"{key}={_plain(x)}" for key, x in (first | dict(fields)).items())


def _plain(x: Any) -> str:
    return f"{x:g}" if isinstance(x, float) else str(x).lower() if isinstance(x, bool) else str(x)


def _layers(layers: list[int], count: int) -> str:
    if layers == list(range(count)):
        return "all"
    return "first" if layers == [0] else f"[{','.join(map(str, layers))}]"
