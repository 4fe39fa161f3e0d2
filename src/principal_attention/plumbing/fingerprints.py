"""What tells one model or one set of data from another: short hashes of their content."""

import hashlib

import torch
from torch import nn


def fingerprint(network: nn.Module, *used: object) -> str:
    """A hash of the weights and of how they are used: it differs for another model, or the same one trained further."""
    seen = hashlib.sha256(" ".join(map(str, (network, *used))).encode())
    for name, tensor in network.state_dict().items():
        seen.update(name.encode())
        seen.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return seen.hexdigest()[:16]
