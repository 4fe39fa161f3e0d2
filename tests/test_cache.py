"""Decoding token by token gives what one causal call gives."""

import math
from itertools import product

import pytest
import torch

import principal_attention as pa
from principal_attention import InputError, Pursuit, PursuitCache

B, H, N, D = 2, 3, 21, 8
PRESETS = tuple(pa.PRESETS)
CHUNKS = {"one by one": [1] * N, "chunks": [4, 1, 7, 9], "prompt, then tokens": [15, 1, 1, 1, 1, 1, 1]}


def decode(k, v, q, chunks, key_mask=None, attn_mask=None, cache=None, **options):
    cache = PursuitCache() if cache is None else cache
    rows, start = [], 0
    for size in chunks:
        new = slice(start, start + size)
        out = pa.rpc_attention(
            k[..., new, :],
            v[..., new, :],
            q=None if q is None else q[..., new, :],
            key_mask=None if key_mask is None else key_mask[..., new],
            attn_mask=None if attn_mask is None else attn_mask[..., new, : start + size],
            is_causal=True,
            cache=cache,
            **options,
        )
        rows.append(out)
        start += size
        assert len(cache) == cache.length == start
    return torch.cat(rows, -2)


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
@pytest.mark.parametrize("preset", PRESETS)
def test_cached_decoding_equals_the_full_call(make, preset, chunks):
    k, v, q = make(B, H, N, D, count=3)
    key_mask = torch.ones(B, 1, N, dtype=torch.bool)
    key_mask[0, :, :3] = False  # left padding, as batched generation has it
    bias = torch.randn(H, N, N, dtype=torch.float64)
    for n, lam, query in product((1, 2, 6), (0.3, 4.0, math.inf), (None, q)):
        options = dict(pursuit=Pursuit(n, lam, preset), model_dim=H * D)
        for masks in ({}, {"key_mask": key_mask}, {"attn_mask": bias}):
            full = pa.rpc_attention(k, v, q=query, is_causal=True, **options, **masks)
            error = (decode(k, v, query, chunks, **options, **masks) - full).abs().max() / full.abs().max()
            assert error < 1e-10


@pytest.mark.parametrize("preset", PRESETS)
def test_float32_stays_within_a_thousandth(make, preset):
    k, v, q = make(B, H, 200, 16, count=3, dtype=torch.float32)
    for n, query in product((4, 6), (None, q)):
        options = dict(pursuit=Pursuit(n, 4.0, preset), model_dim=48)
        full = pa.rpc_attention(k, v, q=query, is_causal=True, **options)
        # The paper's readings double rounding at every iteration: n = 6 moves by 3e-4 from the order of a sum.
        assert (decode(k, v, query, [1] * 200, **options) - full).abs().max() < 1e-3 * full.abs().max()


def test_gradients_flow_through_the_cache(make):
    k, v = (t.requires_grad_() for t in make(H, N, D))
    options = dict(pursuit=Pursuit(3, 0.3))
    for tensors in (torch.autograd.grad(decode(k, v, None, [5, 9, 7], **options).square().sum(), (k, v)),):
        full = torch.autograd.grad(pa.rpc_attention(k, v, is_causal=True, **options).square().sum(), (k, v))
        for a, b in zip(tensors, full, strict=True):
            torch.testing.assert_close(a, b)


def test_old_tokens_are_not_copied_for_every_new_one(make):
    k, v = make(H, 64, D)
    cache = PursuitCache()
    moved = 0
    last = None
    with torch.no_grad():
        for i in range(64):
            new = slice(i, i + 1)
            pa.rpc_attention(k[:, new], v[:, new], pursuit=Pursuit(2, 0.3), is_causal=True, cache=cache)
            where = cache._keys[0]._store.data_ptr()
            moved += where != last
            last = where
    assert moved <= 8  # doubling: 1, 2, 4 … 64


def test_a_call_that_fails_leaves_the_cache_as_it_was(make):
    k, v = make(H, N, D)
    cache, pursuit = PursuitCache(), Pursuit(3, 0.3)
    first = decode(k[:, :9], v[:, :9], None, [9], cache=cache, pursuit=pursuit)
    for wrong, says in (
        (dict(pursuit=Pursuit(2, 0.3)), "was filled by"),
        (dict(pursuit=pursuit, key_mask=torch.ones(H, 99, dtype=torch.bool)), "key_mask"),
        (dict(pursuit=pursuit, attn_mask=torch.ones(3, 3, dtype=torch.bool)), "attn_mask"),
    ):
        with pytest.raises(InputError, match=says):
            pa.rpc_attention(k[:, 9:12], v[:, 9:12], is_causal=True, cache=cache, **wrong)
    with pytest.raises(InputError, match="shapes"):
        pa.rpc_attention(k[:2, 9:], v[:2, 9:], pursuit=pursuit, is_causal=True, cache=cache)
    rest = pa.rpc_attention(k[:, 9:], v[:, 9:], pursuit=pursuit, is_causal=True, cache=cache)
    full = pa.rpc_attention(k, v, pursuit=pursuit, is_causal=True)
    torch.testing.assert_close(torch.cat([first, rest], -2), full)
