"""Fingerprints: short hashes of the content of models."""

import hashlib

import torch
from torch import nn

from ..errors import InputError


def fingerprint(network: nn.Module, *used: object) -> str:
    """Hash of a network's architecture and weights, and of `used`, the settings it is used with."""
    seen = hashlib.sha256(" ".join(map(str, (network, *used))).encode())
    check_weights(network)
    for name, tensor in network.state_dict().items():
        seen.update(name.encode())
        seen.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return seen.hexdigest()[:16]


def check_weights(network: nn.Module) -> None:
    """Raise `InputError` if a weight is NaN or infinite; the accuracy of such a model would be measured as 0."""
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"the model's weights are damaged: {name} holds NaN or infinity")
