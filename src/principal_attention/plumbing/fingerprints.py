"""What tells one model or one set of data from another: short hashes of their content."""

import hashlib

import torch
from torch import nn

from ..errors import InputError


def fingerprint(network: nn.Module, *used: object) -> str:
    """A hash of the weights and of how they are used: it differs for another model, or the same one trained further.

    Weights that are no numbers are refused: such a model answers nothing, and would be measured as always wrong.
    """
    seen = hashlib.sha256(" ".join(map(str, (network, *used))).encode())
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"the model's weights are damaged: {name} holds NaN or infinity")
        seen.update(name.encode())
        seen.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return seen.hexdigest()[:16]
