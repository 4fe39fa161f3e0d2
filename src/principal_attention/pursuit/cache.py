"""`PursuitCache`: keys, values and sums of earlier tokens, for decoding token by token."""

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..sdpa import check_whole


class PursuitCache:
    """Cache of one layer for `rpc_attention(k_new, v_new, …, is_causal=True, cache=cache)`; `len(cache)` is in tokens.

    Tokens may come one by one or in chunks. With causal attention, rows of earlier tokens never change, so the
    cache holds the keys K' of each of the n passes, the values, and the running sums that mu is computed from.
    A call that raises leaves the cache unchanged.
    """

    def __init__(self) -> None:
        self.length = 0
        self._made_for: dict[str, Any] = {}
        self._keys: list[_Rows] = []
        self._values = _Rows()
        self._sums = _Rows()  # prefix sums of ‖k‖₁ and of the tokens, (…, N, 2)
        self._mask: Tensor | None = None

    def __len__(self) -> int:
        return self.length

    def begin(self, k: Tensor, v: Tensor, key_mask: Tensor | None, **setting: Any) -> "CacheStep":
        """Start a call; raise `InputError` if `setting` or the shape of k or v differs from the first call."""
        for name, x in (("k", k), ("v", v)):
            setting[name] = ((*x.shape[:-2], "…", x.shape[-1]), x.dtype, x.device)
        if self.length:
            for name, now in setting.items():
                if now != self._made_for[name]:
                    raise InputError(
                        f"the cache was filled with {name} = {self._made_for[name]} and is now given {now}; "
                        "use a new PursuitCache"
                    )
        else:
            self._made_for, self._mask = setting, None
            self._values, self._sums = _Rows(), _Rows()
            self._keys = [_Rows() for _ in range(setting["pursuit"].iterations)]
        return CacheStep(self, k, key_mask)

    def crop(self, length: int) -> None:
        """Keep the first `length` tokens and drop the others."""
        check_whole("length", length, at_least=0)
        if length > self.length:
            raise InputError(f"length is {length}; the cache holds {self.length} tokens, pass that number or less")
        self.length = length
        self._mask = None if self._mask is None else self._mask[..., :length]

    def select(self, indices: Tensor) -> None:
        """Keep the entries `indices` of the first leading dimension, in this order, as for beam search."""
        if not self.length:
            return
        for rows in (*self._keys, self._values, self._sums):
            rows.select(indices)
        self._mask = None if self._mask is None else self._mask[indices.to(self._mask.device)]
        for name in ("k", "v"):
            shape, *rest = self._made_for[name]
            self._made_for[name] = ((self._values.batch, *shape[1:]), *rest)

    def repeat(self, times: int) -> None:
        """Repeat each entry of the first leading dimension `times` times, as `torch.repeat_interleave` does."""
        if self.length:
            self.select(torch.arange(self._values.batch).repeat_interleave(times))


class CacheStep:
    """The new rows of one call. They become part of the cache with `commit`."""

    def __init__(self, cache: PursuitCache, k: Tensor, key_mask: Tensor | None):
        self._cache, self._new = cache, k.shape[-2]
        self.key_mask = _extend_mask(cache, k, key_mask)

    def keys(self, i: int, new: Tensor) -> Tensor:
        return self._cache._keys[i].append(new, self._cache.length)

    def values(self, new: Tensor) -> Tensor:
        return self._cache._values.append(new, self._cache.length)

    def running(self, norms: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
        """Prefix sums of the new tokens that continue the stored sums, in the order of one cumulative sum."""
        new = torch.stack([norms, ones.expand(norms.shape)], -1)  # (…, M, 2)
        past = self._cache.length
        if past:
            last = self._cache._sums.first(past)[..., -1:, :]
            new = torch.cat([last + new[..., :1, :], new[..., 1:, :]], -2)
        new = new.cumsum(-2)
        self._cache._sums.append(new, past)
        return new[..., 0], new[..., 1]

    def commit(self) -> None:
        self._cache.length += self._new
        self._cache._mask = self.key_mask


def _extend_mask(cache: PursuitCache, k: Tensor, key_mask: Tensor | None) -> Tensor | None:
    old = cache._mask
    if old is None and key_mask is None:
        return None

    def full(mask: Tensor | None, length: int) -> Tensor:
        mask = torch.ones(length, dtype=torch.bool, device=k.device) if mask is None else mask
        return mask.expand(*k.shape[:-2], length)

    return torch.cat([full(old, cache.length), full(key_mask, k.shape[-2])], -1)


class _Rows:
    """Growing tensor (…, N, D). Its memory doubles when full, so that most appends copy no earlier rows."""

    def __init__(self) -> None:
        self._store: Tensor | None = None
        self._held = False  # True if an autograd graph may hold the store, which must not be written to then

    def append(self, new: Tensor, past: int) -> Tensor:
        store, total = self._store, past + new.shape[-2]
        if torch.is_grad_enabled():
            store = new.clone() if store is None else torch.cat([store[..., :past, :], new], -2)
            self._held = True
        else:
            frozen = store is not None and store.is_inference() and not torch.is_inference_mode_enabled()
            if store is None or store.shape[-2] < total or self._held or frozen:
                grown = new.new_empty(*new.shape[:-2], max(total, 2 * past), new.shape[-1])
                if store is not None:
                    grown[..., :past, :] = store[..., :past, :]
                store, self._held = grown, False
            store[..., past:total, :] = new
        self._store = store
        return self.first(total)

    @property
    def batch(self) -> int:
        assert self._store is not None
        return self._store.shape[0]

    def first(self, count: int) -> Tensor:
        assert self._store is not None
        return self._store[..., :count, :]

    def select(self, indices: Tensor) -> None:
        if self._store is not None:
            self._store = self._store[indices.to(self._store.device)]
