"""Tensors that the fast path allocates and saves for the backward pass."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import principal_attention as pa
from principal_attention import Pursuit

H, N, D = 2, 96, 8
PRESETS = tuple(pa.PRESETS)


class Shapes(TorchDispatchMode):
    """Mode that records the tensors returned by all operations, forward and backward."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.seen.add((tuple(x.shape), x.dtype))
        return out

    def square(self, kind):
        return {s for s, dtype in self.seen if s[-2:] == (N, N) and (dtype == torch.bool) == (kind == "bool")}


def tensors(grad=True):
    return [torch.randn(1, H, N, D, requires_grad=grad) for _ in range(3)]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("case", ["plain", "padded", "causal"])
def test_no_square_matrix_is_ever_made(preset, case, recompute):
    q, k, v = tensors()
    options = {"padded": {"key_mask": torch.arange(N) < 80}, "causal": {"is_causal": True}}.get(case, {})
    for query in (None, q):
        with Shapes() as shapes:
            out = pa.rpc_attention(
                k, v, q=query, pursuit=Pursuit(4, 0.3, preset), model_dim=16, recompute=recompute, **options
            )
            out.sum().backward()
        assert len(shapes.seen) > 5
        assert not shapes.square("float")
        assert not shapes.square("bool")


def test_one_mask_serves_all_passes_where_causal_and_padded_meet():
    """torch adds masks, so the boolean mask is converted to a bias once; no pass allocates or saves another."""
    _, k, v = tensors()
    key_mask = (torch.arange(N) < 80).expand(1, 1, N)
    kept, made = {}, {}
    for n in (2, 6):
        with Shapes() as shapes:
            out = pa.rpc_attention(k, v, pursuit=Pursuit(n), key_mask=key_mask, is_causal=True)
            out.sum().backward()
        made[n] = shapes.square("float") | shapes.square("bool")
        kept[n] = kept_bytes(n, "paper", key_mask=key_mask, is_causal=True)
        assert made[n] <= {(N, N), (1, N, N), (1, 1, N, N)}  # shared by the heads
    assert made[2] == made[6]
    unit = H * N * D * 4
    assert (kept[6] - kept[2]) / 4 <= 2.25 * unit + H * N * 4


@pytest.mark.parametrize("shape", [(N, D), (H, N, D), (2, 1, H, N, D)])
def test_other_leading_dimensions_and_widths_stay_linear_too(shape):
    k, v = torch.randn(shape), torch.randn(*shape[:-1], 5)
    with Shapes() as shapes:
        pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3, "cleaned"))
    assert not shapes.square("float")


def kept_bytes(n, preset, **options):
    """Bytes of distinct storages that the graph saves, without the inputs."""
    _, k, v = tensors()
    kept = {}

    def pack(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = pa.rpc_attention(k, v, pursuit=Pursuit(n, 0.3, preset), model_dim=16, **options)
    for given in (k, v, out):
        kept.pop(given.untyped_storage().data_ptr(), None)
    return sum(kept.values())


@pytest.mark.parametrize("preset", PRESETS)
def test_a_pass_keeps_its_input_its_output_and_a_byte_an_entry(preset):
    unit = H * N * D * 4
    per_pass = (kept_bytes(6, preset) - kept_bytes(2, preset)) / 4
    rows = H * N * 4  # the softmax's log-sum-exp, a float a row
    assert per_pass <= 2 * unit + unit / 4 + rows


@pytest.mark.parametrize("preset", PRESETS)
def test_recompute_keeps_nothing_that_grows_with_the_iterations(preset):
    assert kept_bytes(6, preset, recompute=True) == kept_bytes(2, preset, recompute=True)
    assert kept_bytes(6, preset, recompute=True) < kept_bytes(2, preset)


def test_without_gradients_two_buffers_serve_any_number_of_iterations():
    """The number of new key-sized storages, without the outputs of the passes, does not grow with n."""

    class Fresh(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
            for x in tree_leaves(out):
                large = isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.numel() >= H * N * D
                self.count += large and x.untyped_storage().data_ptr() not in given
            return out

    _, k, v = tensors(grad=False)
    counts = {}
    for n in (2, 6):
        with Fresh() as fresh:
            pa.rpc_attention(k, v, pursuit=Pursuit(n, 0.3))
        counts[n] = fresh.count
    assert counts[6] - counts[2] == 4  # one output a pass, from the fused kernel
    assert math.isfinite(pa.rpc_attention(k, v, pursuit=Pursuit(6, 0.3)).sum())
