"""Precision of the forward pass."""

from contextlib import AbstractContextManager

import torch

from ..errors import InputError


def resolve(precision: str) -> str:
    """The precision itself; "auto" is bfloat16 on a GPU or CPU with bfloat16 instructions, else float32."""
    if precision == "float16" and not torch.cuda.is_available():
        raise InputError("training.precision is float16, which needs a GPU; use bfloat16 or float32")
    if precision != "auto":
        return precision
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return "bfloat16" if found.get("avx512_bf16") or found.get("amx_bf16") else "float32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Context in which a forward pass has this precision."""
    name = resolve(precision)
    return torch.autocast(device.type, None if name == "float32" else getattr(torch, name), enabled=name != "float32")
