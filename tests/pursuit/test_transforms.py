"""torch.compile, export, torch.func, autocast and devices give the same numbers."""

import math
import shutil

import pytest
import torch
from torch.func import grad, jacrev, vmap

import principal_attention as pa
from principal_attention import RPC, KernelPCAValues, Pursuit, Scaled, SelfAttention, Softmax, Symmetric

B, H, N, D = 2, 3, 9, 4
PRESETS = tuple(pa.PRESETS)
KEY_MASK = torch.ones(B, 1, N, dtype=torch.bool)
KEY_MASK[0, :, 6:] = False

FUNCTIONS = {
    **{
        f"rpc {preset}{' causal padded' if masked else ''}": (
            lambda q, k, v, p=preset, m=masked: pa.rpc_attention(
                k, v, q=q, pursuit=Pursuit(3, 0.3, p), model_dim=H * D, is_causal=m, key_mask=KEY_MASK if m else None
            )
        )
        for preset in PRESETS
        for masked in (False, True)
    },
    "rpc symmetric": lambda q, k, v: pa.rpc_attention(k, v, pursuit=Pursuit(2, 0.3)),
    "rpc recompute": lambda q, k, v: pa.rpc_attention(k, v, pursuit=Pursuit(3, 0.3), recompute=True),
    "rpc without threshold": lambda q, k, v: pa.rpc_attention(k, v, pursuit=Pursuit(3, math.inf)),
    "symmetric": lambda q, k, v: pa.symmetric_attention(k, v, is_causal=True),
    "scaled alpha": lambda q, k, v: pa.scaled_attention(q, k, v, mixing=torch.tensor(0.3, dtype=q.dtype)),
    "scaled matrix": lambda q, k, v: pa.scaled_attention(q, k, v, mixing=torch.ones(N, N, dtype=q.dtype) / 9),
    "scaled exact": lambda q, k, v: pa.scaled_attention(q, k, v, mixing="exact"),
    "kernel pca": lambda q, k, v: pa.kernel_pca_attention(q, k, n_components=3),
}


def inputs(dtype=torch.float64):
    random = torch.Generator().manual_seed(3)
    return [torch.randn(B, H, N, D, generator=random, dtype=torch.float64).to(dtype) for _ in range(3)]


def gradients(function, tensors):
    tracked = [t.clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*tracked).square().sum(), tracked, allow_unused=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compile_fullgraph(name):
    function, tensors = FUNCTIONS[name], inputs()
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), function(*tensors))
    for a, b in zip(gradients(compiled, tensors), gradients(function, tensors), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_compile_takes_pursuits_and_lengths_that_vary():
    """With a second value, dynamo traces the number as a symbol."""
    torch._dynamo.reset()
    compiled = torch.compile(pa.rpc_attention, fullgraph=True, backend="aot_eager")
    for n, lam in ((9, 0.3), (7, 0.4), (8, 0.5), (6, 0.6)):
        _, k, v = (t[..., :n, :] for t in inputs())
        pursuit = Pursuit(2, lam)
        torch.testing.assert_close(compiled(k, v, pursuit=pursuit), pa.rpc_attention(k, v, pursuit=pursuit))
    torch._dynamo.reset()
    dynamic = torch.compile(pa.rpc_attention, fullgraph=True, backend="aot_eager", dynamic=True)
    torch.testing.assert_close(dynamic(k, v, pursuit=pursuit), pa.rpc_attention(k, v, pursuit=pursuit))


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++: no g++ here")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inductor's own import
@pytest.mark.parametrize(
    "name",
    ["rpc paper", *(pytest.param(n, marks=pytest.mark.slow) for n in
                    ("rpc cleaned causal padded", "scaled exact", "kernel pca"))],
)  # fmt: skip
def test_compile_with_inductor(name):
    function, tensors = FUNCTIONS[name], inputs()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(function, fullgraph=True)(*tensors), function(*tensors))


@pytest.mark.parametrize(
    "mechanism",
    [Softmax(), Symmetric(), RPC(Pursuit(2)), RPC(Pursuit(2, preset="cleaned"), form="query"), Scaled("alpha"),
     Scaled("matrix", num_tokens=N), Scaled("exact"), KernelPCAValues(3)],
    ids=str,
)  # fmt: skip
def test_export(mechanism):
    layer = SelfAttention(12, 3, mechanism).eval()
    x = torch.randn(2, N, 12)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize(
    "mechanism", [Softmax(), Symmetric(), RPC(Pursuit(2, 0.3)), Scaled("alpha"), Scaled("exact")], ids=str
)
def test_export_with_any_number_of_tokens(mechanism):
    layer = SelfAttention(12, 3, mechanism).eval()
    tokens = torch.export.Dim("tokens", min=4, max=512)
    program = torch.export.export(layer, (torch.randn(2, 29, 12),), dynamic_shapes={"x": {1: tokens}})
    for n in (5, 29, 64):
        x = torch.randn(2, n, 12)
        torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_func_grad(name):
    function, tensors = FUNCTIONS[name], inputs()
    ours = grad(lambda *t: function(*t).square().sum(), argnums=(0, 1, 2))(*tensors)
    for a, b in zip(ours, gradients(function, tensors), strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if "padded" not in n])
def test_vmap_and_per_sample_gradients(name):
    function, tensors = FUNCTIONS[name], inputs()
    torch.testing.assert_close(vmap(function)(*tensors), function(*tensors))
    per_sample = vmap(grad(lambda k, q, v: function(q, k, v).square().sum()))(tensors[1], tensors[0], tensors[2])
    expected = gradients(function, tensors)[1]
    torch.testing.assert_close(per_sample, expected, rtol=1e-6, atol=1e-9)


def test_second_derivatives_under_torch_func(make):
    k, v = make(4, 3)

    def loss(k):
        return pa.rpc_attention(k, v, pursuit=Pursuit(2, 0.3)).square().sum()

    hessian = jacrev(grad(loss))(k).reshape(12, 12)
    torch.testing.assert_close(hessian, hessian.mT)


@pytest.mark.parametrize("preset", PRESETS)
def test_autocast_to_bfloat16(preset):
    tensors = inputs(torch.float32)
    options = dict(pursuit=Pursuit(2, 4.0, preset), model_dim=H * D)
    full = pa.rpc_attention(tensors[1], tensors[2], q=tensors[0], **options)
    leaves = [t.clone().requires_grad_() for t in tensors]
    with torch.autocast("cpu", torch.bfloat16):
        # A normalised q is float32 and projections are bfloat16; autocast must convert them to one dtype.
        out = pa.rpc_attention(leaves[1].bfloat16(), leaves[2].bfloat16(), q=leaves[0], **options)
    assert out.dtype == torch.bfloat16
    # Two passes of 8-bit mantissas, inputs rounded too.
    torch.testing.assert_close(out.float(), full, atol=0.05 * full.abs().max().item(), rtol=0)
    out.float().square().sum().backward()
    for leaf in leaves:
        assert leaf.grad.dtype == torch.float32
        assert torch.isfinite(leaf.grad).all()


def test_autocast_trains_every_module():
    x = torch.randn(2, N, 12)
    for mechanism in (Softmax(), Symmetric(), RPC(Pursuit(3)), Scaled("alpha"), Scaled("exact"), KernelPCAValues(2)):
        layer = SelfAttention(12, 3, mechanism)
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer(x).float().square().mean()
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if "padded" not in n and "scaled" not in n])
def test_no_device_is_hard_coded(name):
    """On the meta device, any tensor created on another device raises an error."""
    tensors = [t.to("meta") for t in inputs()]
    assert FUNCTIONS[name](*tensors).device.type == "meta"


def test_activation_checkpointing_and_retained_graphs():
    tensors = [t.requires_grad_() for t in inputs()]

    def function(q, k, v):
        return pa.rpc_attention(k, v, q=q, pursuit=Pursuit(3, 0.3))

    out = torch.utils.checkpoint.checkpoint(function, *tensors, use_reentrant=False)
    expected = torch.autograd.grad(function(*tensors).square().sum(), tensors)
    for a, b in zip(torch.autograd.grad(out.square().sum(), tensors), expected, strict=True):
        torch.testing.assert_close(a, b)
    loss = function(*tensors).square().sum()
    once = torch.autograd.grad(loss, tensors, retain_graph=True)
    for a, b in zip(once, torch.autograd.grad(loss, tensors), strict=True):
        assert torch.equal(a, b)
