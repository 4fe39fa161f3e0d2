"""Incremental decoding: what the passes over earlier tokens leave behind for the next one."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .errors import InputError

if TYPE_CHECKING:
    from .pursuit import Pursuit


class PursuitCache:
    """Grows as `rpc_attention(k_new, v_new, …, is_causal=True, cache=cache)` is fed token by token or in chunks.

    Causal rows never change once made, so each pass keeps its own K' and the prefix mu its running sums:
    n key stores and one value store per layer. A call that fails leaves the cache as it was.
    """

    def __init__(self) -> None:
        self.length = 0
        self._rule: Pursuit | None = None
        self._shapes: tuple[torch.Size, ...] = ()
        self._keys: list[_Rows] = []
        self._values = _Rows()
        self._sums: tuple[Tensor, Tensor] | None = None
        self._mask: Tensor | None = None

    def __len__(self) -> int:
        return self.length

    def begin(self, rule: "Pursuit", k: Tensor, v: Tensor, key_mask: Tensor | None) -> "CacheStep":
        shapes = tuple(torch.Size((*t.shape[:-2], t.shape[-1])) for t in (k, v))
        if self.length and rule != self._rule:
            raise InputError(f"the cache was filled by {self._rule} and is now given {rule}; use a new one")
        if self.length and shapes != self._shapes:
            raise InputError(
                f"the cache holds (…, D) shapes {[tuple(s) for s in self._shapes]} of k and v and is now given "
                f"{[tuple(s) for s in shapes]}; use a new one"
            )
        if not self.length:
            self._rule, self._shapes = rule, shapes
            self._keys = [_Rows() for _ in range(rule.iterations)]
        return CacheStep(self, k, key_mask)


class CacheStep:
    """One call's view of the cache; nothing counts as stored until `commit`."""

    def __init__(self, cache: PursuitCache, k: Tensor, key_mask: Tensor | None):
        self._cache, self._new = cache, k.shape[-2]
        self._sums = cache._sums
        self.key_mask = _extend_mask(cache, k, key_mask)

    def keys(self, i: int, new: Tensor) -> Tensor:
        return self._cache._keys[i].append(new, self._cache.length)

    def values(self, new: Tensor) -> Tensor:
        return self._cache._values.append(new, self._cache.length)

    def running(self, norms: Tensor, ones: Tensor) -> tuple[Tensor, Tensor]:
        """Prefix sums that go on from the stored ones, in the order one long cumulative sum would take."""
        if self._sums is not None:
            norms, ones = (
                torch.cat([old + new[..., :1], new[..., 1:]], -1)
                for old, new in zip(self._sums, (norms, ones), strict=True)
            )
        norms, ones = norms.cumsum(-1), ones.cumsum(-1)
        self._sums = norms[..., -1:], ones[..., -1:]
        return norms, ones

    def commit(self) -> None:
        self._cache.length += self._new
        self._cache._sums, self._cache._mask = self._sums, self.key_mask


def _extend_mask(cache: PursuitCache, k: Tensor, key_mask: Tensor | None) -> Tensor | None:
    old = cache._mask
    if old is None and key_mask is None:
        return None

    def full(mask: Tensor | None, length: int) -> Tensor:
        mask = torch.ones(length, dtype=torch.bool, device=k.device) if mask is None else mask
        return mask.expand(*k.shape[:-2], length)

    return torch.cat([full(old, cache.length), full(key_mask, k.shape[-2])], -1)


class _Rows:
    """Rows (…, N, D) that grow; memory doubles, so a new token does not copy the old ones."""

    def __init__(self) -> None:
        self._store: Tensor | None = None

    def append(self, new: Tensor, past: int) -> Tensor:
        store, total = self._store, past + new.shape[-2]
        if torch.is_grad_enabled() and (new.requires_grad or (store is not None and store.requires_grad)):
            store = new if store is None else torch.cat([store[..., :past, :], new], -2)
        else:
            if store is None or store.shape[-2] < total:
                grown = new.new_empty(*new.shape[:-2], max(total, 2 * past), new.shape[-1])
                if store is not None:
                    grown[..., :past, :] = store[..., :past, :]
                store = grown
            store[..., past:total, :] = new
        self._store = store
        return store[..., :total, :]
