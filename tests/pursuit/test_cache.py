"""Decoding token by token equals one causal call."""

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
        # The paper's readings double rounding at every iteration, and decoding sums in another order.
        assert (decode(k, v, query, [1] * 200, **options) - full).abs().max() < 1e-3 * full.abs().max()


@pytest.mark.parametrize("preset", ["paper", "cleaned"])
@pytest.mark.parametrize("which", ["kvq", "k", "v", "q"])
def test_gradients_flow_through_the_cache(make, preset, which):
    k, v, q = (t.requires_grad_(name in which) for t, name in zip(make(H, N, D, count=3), "kvq", strict=True))
    inputs = [t for t in (k, v, q) if t.requires_grad]
    options = dict(pursuit=Pursuit(3, 0.3, preset))
    cached = torch.autograd.grad(decode(k, v, q, [5, 1, 8, 7], **options).square().sum(), inputs)
    full = torch.autograd.grad(pa.rpc_attention(k, v, q=q, is_causal=True, **options).square().sum(), inputs)
    for a, b in zip(cached, full, strict=True):
        torch.testing.assert_close(a, b)


def test_a_mask_may_come_and_go(make):
    k, v = make(B, H, N, D)
    key_mask = torch.ones(B, 1, N, dtype=torch.bool)
    key_mask[0, :, :3] = False
    options = dict(pursuit=Pursuit(3, 0.3), is_causal=True)
    cache = PursuitCache()
    rows = [
        pa.rpc_attention(k[..., a:b, :], v[..., a:b, :], key_mask=mask, cache=cache, **options)
        for a, b, mask in ((0, 5, key_mask[..., :5]), (5, 9, None), (9, N, torch.ones(N - 9, dtype=torch.bool)))
    ]
    torch.testing.assert_close(torch.cat(rows, -2), pa.rpc_attention(k, v, key_mask=key_mask, **options))


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


def test_a_call_that_fails_leaves_the_cache_as_it_was(make, monkeypatch):
    k, v = make(H, N, D)
    cache, pursuit = PursuitCache(), Pursuit(3, 0.3)
    passes, attend = 0, pa.pursuit.rpc.attend

    def broken(*args, **options):
        nonlocal passes
        passes += 1
        if passes % 3 == 2:  # in the middle of the pursuit, rows already written
            raise MemoryError
        return attend(*args, **options)

    for tokens in (slice(0, 9), slice(9, N)):
        # A first call that fails may be tried again with another batch; a later one with other numbers.
        heads = slice(0, H if len(cache) else H - 1)
        monkeypatch.setattr(pa.pursuit.rpc, "attend", broken)
        with pytest.raises(MemoryError):
            pa.rpc_attention(5 * k[heads, tokens], v[heads, tokens], pursuit=pursuit, is_causal=True, cache=cache)
        monkeypatch.undo()
        passes = 0
        rows = pa.rpc_attention(k[:, tokens], v[:, tokens], pursuit=pursuit, is_causal=True, cache=cache)
        full = pa.rpc_attention(k, v, pursuit=pursuit, is_causal=True)
        torch.testing.assert_close(rows, full[:, tokens])


def test_what_a_cache_was_made_for_cannot_change(make):
    k, v = make(H, N, D)
    cache, pursuit = PursuitCache(), Pursuit(3, 0.3)
    decode(k[:, :9], v[:, :9], None, [9], cache=cache, pursuit=pursuit)
    new = dict(k=k[:, 9:12], v=v[:, 9:12], pursuit=pursuit)
    for wrong, says in (
        (dict(pursuit=Pursuit(2, 0.3)), "filled with pursuit = "),
        (dict(scale=2.0), "filled with scale = None and is now given 2.0"),
        (dict(q=k[:, 9:12]), "symmetric = True"),
        (dict(k=k[:2, 9:12], v=v[:2, 9:12]), "filled with k = "),
        (dict(k=k[:, 9:12].float(), v=v[:, 9:12].float()), "torch.float64.* now given .*torch.float32"),
        (dict(key_mask=torch.ones(H, 99, dtype=torch.bool)), "key_mask"),
        (dict(attn_mask=torch.ones(3, 3, dtype=torch.bool)), "attn_mask"),
    ):
        options = new | wrong
        with pytest.raises(InputError, match=says):
            pa.rpc_attention(options.pop("k"), options.pop("v"), is_causal=True, cache=cache, **options)
    assert len(cache) == 9


def test_a_layer_that_recomputes_in_training_still_decodes(make):
    (x,) = make(2, 5, 12, count=1)
    layer = pa.SelfAttention(12, 3, pa.RPC(Pursuit(3, 0.3), recompute=True)).double()
    cache = PursuitCache()
    rows = torch.cat([layer(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(5)], 1)
    torch.testing.assert_close(rows, layer(x, is_causal=True))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_cropped_cache_goes_on_as_if_the_rest_had_never_come(make, preset):
    k, v, q = make(B, H, N, D, count=3)
    key_mask = torch.ones(B, 1, N, dtype=torch.bool)
    key_mask[0, :, :3] = False
    options = dict(pursuit=Pursuit(3, 0.3, preset), model_dim=H * D)
    full = pa.rpc_attention(k, v, q=q, is_causal=True, key_mask=key_mask, **options)
    with torch.no_grad():
        cache, wrong = PursuitCache(), torch.randn_like(k)
        decode(k[..., :8, :], v[..., :8, :], q[..., :8, :], [8], key_mask[..., :8], cache=cache, **options)
        decode_on(wrong[..., :6, :], wrong[..., :6, :], wrong[..., :6, :], cache, **options)
        cache.crop(8)
        rows = decode_on(k[..., 8:, :], v[..., 8:, :], q[..., 8:, :], cache, key_mask=key_mask[..., 8:], **options)
    torch.testing.assert_close(rows, full[..., 8:, :])
    with pytest.raises(InputError, match="length is 99; the cache holds 21 tokens"):
        cache.crop(99)
    cache.crop(0)
    assert len(cache) == 0
    torch.testing.assert_close(decode_on(k, v, q, cache, key_mask=key_mask, **options), full)


def decode_on(k, v, q, cache, **options):
    return pa.rpc_attention(k, v, q=q, is_causal=True, cache=cache, **options)


@pytest.mark.parametrize("preset", PRESETS)
def test_beams_and_batches_are_selected_and_repeated(make, preset):
    k, v = make(B, H, N, D)
    key_mask = torch.ones(B, 1, N, dtype=torch.bool)
    key_mask[0, :, :3] = False
    options = dict(pursuit=Pursuit(3, 0.3, preset), model_dim=H * D)
    chosen = torch.tensor([1, 1, 0])
    cache = PursuitCache()
    cache.select(chosen)  # an empty one has nothing to select
    decode_on(k[..., :9, :], v[..., :9, :], None, cache, key_mask=key_mask[..., :9], **options)
    cache.select(chosen)
    picked = [x[chosen] for x in (k, v, key_mask)]
    full = pa.rpc_attention(picked[0], picked[1], key_mask=picked[2], is_causal=True, **options)
    rows = decode_on(picked[0][..., 9:12, :], picked[1][..., 9:12, :], None, cache, **options)
    torch.testing.assert_close(rows, full[..., 9:12, :])
    cache.repeat(2)
    more = [x.repeat_interleave(2, 0)[..., 12:, :] for x in picked[:2]]
    torch.testing.assert_close(decode_on(*more, None, cache, **options), full[..., 12:, :].repeat_interleave(2, 0))


def test_a_graph_that_holds_the_rows_is_never_written_into(make):
    """Gradients of a prefill stay correct after cropping and decoding without gradients."""
    k, v = (t.requires_grad_() for t in make(B, H, N, D))
    options = dict(pursuit=Pursuit(3, 0.3))
    expected = torch.autograd.grad(pa.rpc_attention(k, v, is_causal=True, **options).square().sum(), (k, v))
    cache = PursuitCache()
    out = decode_on(k, v, None, cache, **options)
    cache.crop(N - 3)
    with torch.no_grad():
        decode_on(k[..., :2, :], v[..., :2, :], None, cache, **options)
    for a, b in zip(torch.autograd.grad(out.square().sum(), (k, v)), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_cache_filled_in_inference_mode_goes_on_outside_it(make):
    k, v = make(B, H, N, D)
    options = dict(pursuit=Pursuit(3, 0.3))
    cache = PursuitCache()
    with torch.inference_mode():
        decode_on(k[..., :9, :], v[..., :9, :], None, cache, **options)
        decode_on(k[..., 9:12, :], v[..., 9:12, :], None, cache, **options)
    with torch.no_grad():
        rows = decode_on(k[..., 12:, :], v[..., 12:, :], None, cache, **options)
    torch.testing.assert_close(rows, pa.rpc_attention(k, v, is_causal=True, **options)[..., 12:, :])
