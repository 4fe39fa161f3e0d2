"""What tells one model or one set of data from another: short hashes of their content."""

import hashlib

import torch
from torch import nn

from ..errors import InputError


def fingerprint(network: nn.Module, *used: object) -> str:
    """Hash of the weights and of how they are used: it differs for another model, or the same one trained further."""
    seen = hashlib.sha256(" ".join(map(str, (network, *used))).encode())
    check_weights(network)
    for name, tensor in network.state_dict().items():
        seen.update(name.encode())
        seen.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return seen.hexdigest()[:16]


def check_weights(network: nn.Module) -> None:
    """Raise InputError for weights with NaN or infinity, whose model would be measured as always wrong."""
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"the model's weights are damaged: {name} holds NaN or infinity")
