"""Conversion of masks of `scaled_dot_product_attention` to those of `rpc_attention`."""

import torch
from torch import Tensor

from ..sdpa import lean_allowed

NEVER = -9999.0  # an additive mask below this hides its key; libraries use -inf, a dtype's minimum, -1e9 and -1e4


def visible_keys(mask: Tensor | None, q: Tensor, columns: int) -> tuple[Tensor | None, bool]:
    """Padding and causality of a mask of `scaled_dot_product_attention`; mu is computed from them.

    Returns:
        The keys that at least one row attends to, as a `key_mask`, and whether the mask is causal (no row attends to
        a later key). The latter depends on the mask's values, so under a compiler it is False.
    """
    if mask is None:
        return None, False
    seen = mask if mask.dtype == torch.bool else mask > NEVER
    seen = seen.expand(*seen.shape[:-1], columns)
    shared = seen.shape[-2] == 1  # all rows attend to the same keys
    square = q.shape[-2] == columns > 1 and not shared
    triangular = square and lean_allowed() and not bool(seen.triu(1).any())
    keys = seen[..., 0, :] if shared else seen.any(-2)
    if keys.ndim > 1:
        keys = keys.reshape((1,) * (q.ndim - 1 - keys.ndim) + keys.shape)
    return keys, triangular
