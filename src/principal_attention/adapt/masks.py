"""What other people's masks mean to a pursuit."""

import torch
from torch import Tensor

from ..sdpa import lean_allowed

NEVER = -9999.0  # an additive mask below this hides its key: people write -inf, a dtype's lowest, -1e9 and -1e4


def visible_keys(mask: Tensor | None, q: Tensor, columns: int) -> tuple[Tensor | None, bool]:
    """What a mask of `scaled_dot_product_attention` says about padding and causality, which mu must know.

    Returns the boolean mask of keys that some row may see, ready to be a `key_mask`, and whether no row sees a later
    key. The second needs a look at the values, so under a compiler it is False and the caller's flag decides.
    """
    if mask is None:
        return None, False
    seen = mask if mask.dtype == torch.bool else mask > NEVER
    seen = seen.expand(*seen.shape[:-1], columns)
    shared = seen.shape[-2] == 1  # all rows see the same keys
    square = q.shape[-2] == columns > 1 and not shared
    triangular = square and lean_allowed() and not bool(seen.triu(1).any())
    keys = seen[..., 0, :] if shared else seen.any(-2)
    if keys.ndim > 1:
        keys = keys.reshape((1,) * (q.ndim - 1 - keys.ndim) + keys.shape)
    return keys, triangular
