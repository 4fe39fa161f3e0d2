"""`SelfAttention`: parameters, exchange of weights with timm, and each mechanism compared with its function."""

import math

import pytest
import torch

import principal_attention as pa
from principal_attention import RPC, InputError, KernelPCAValues, Pursuit, Scaled, SelfAttention, Softmax, Symmetric

B, N, DIM, HEADS = 2, 11, 24, 3
MECHANISMS = [
    Softmax(),
    Symmetric(),
    RPC(Pursuit(3, 0.5)),
    RPC(Pursuit(2, 0.5, "authors")),
    RPC(Pursuit(3, 0.5, "cleaned"), form="query"),
    Scaled("matrix", num_tokens=N),
    Scaled("alpha"),
    Scaled("exact"),
    KernelPCAValues(5),
    KernelPCAValues(),
]


@pytest.fixture
def x():
    return torch.randn(B, N, DIM)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_every_mechanism_trains(mechanism, x):
    layer = SelfAttention(DIM, HEADS, mechanism)
    out = layer(x)
    assert out.shape == x.shape
    out.square().sum().backward()
    for name, p in layer.named_parameters():
        assert torch.isfinite(p.grad).all(), name
    if isinstance(mechanism, Scaled) and mechanism.kind != "exact":
        assert layer.mixing.grad.abs().sum() > 0
    assert str(mechanism) in repr(layer)


def test_softmax_interchanges_weights_with_timm(x):
    from principal_attention.installs import torchvision as _torchvision  # noqa: F401, I001  (before timm)
    from timm.layers.attention import Attention

    theirs = Attention(DIM, HEADS, qkv_bias=True).eval()
    ours = SelfAttention(DIM, HEADS, Softmax()).eval()
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))
    torch.nn.init.normal_(ours.qkv.weight)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))


def test_symmetric_has_one_key_value_projection_and_no_query():
    layer = SelfAttention(DIM, HEADS, Symmetric())
    assert set(layer.state_dict()) == {"kv.weight", "kv.bias", "proj.weight", "proj.bias"}
    assert layer.kv.weight.shape == (2 * DIM, DIM)
    assert set(SelfAttention(DIM, HEADS, RPC()).state_dict()) == set(layer.state_dict())
    assert "qkv.weight" in SelfAttention(DIM, HEADS, RPC(form="query")).state_dict()
    assert set(SelfAttention(DIM, HEADS, KernelPCAValues(), qkv_bias=False, proj_bias=False).state_dict()) == {
        "qk.weight",
        "proj.weight",
    }


def test_a_mechanism_shared_by_layers_shares_no_weights():
    mechanism = Scaled("matrix", num_tokens=N)
    first, second = (SelfAttention(DIM, HEADS, mechanism) for _ in range(2))
    assert first.mixing.shape == (HEADS, N, N)
    assert first.mixing is not second.mixing
    assert SelfAttention(DIM, HEADS, Scaled("alpha")).mixing.shape == ()


def split(layer, name, x):
    projected = getattr(layer, name)(x).reshape(B, N, len(name), HEADS, DIM // HEADS)
    return dict(zip(name, projected.permute(2, 0, 3, 1, 4), strict=True))


def merge(layer, out):
    return layer.proj(out.transpose(1, 2).reshape(B, N, DIM))


def test_forward_is_the_function_on_the_projections(x):
    key_mask = torch.rand(B, N) > 0.3
    masks = dict(key_mask=key_mask[:, None], is_causal=True)
    pursuit = Pursuit(3, 0.4, "authors")
    cases = [
        (RPC(pursuit), "kv", lambda p: pa.rpc_attention(p["k"], p["v"], pursuit=pursuit, model_dim=DIM, **masks)),
        (
            RPC(pursuit, form="query"),
            "qkv",
            lambda p: pa.rpc_attention(p["k"], p["v"], q=p["q"], pursuit=pursuit, model_dim=DIM, **masks),
        ),
        (Symmetric(), "kv", lambda p: pa.symmetric_attention(p["k"], p["v"], **masks)),
    ]
    for mechanism, name, function in cases:
        layer = SelfAttention(DIM, HEADS, mechanism)
        expected = merge(layer, function(split(layer, name, x)))
        torch.testing.assert_close(layer(x, key_mask=key_mask, is_causal=True), expected)


@pytest.mark.parametrize("mechanism", [Softmax(), Symmetric(), RPC(Pursuit(3, 0.5)), RPC(Pursuit(2), form="query")])
def test_cached_decoding_through_the_module(mechanism, x):
    layer = SelfAttention(DIM, HEADS, mechanism).double().eval()
    x = x.double()
    cache = pa.PursuitCache()
    rows = torch.cat([layer(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(N)], 1)
    torch.testing.assert_close(rows, layer(x, is_causal=True))


def test_dropout_only_in_training(x):
    layer = SelfAttention(DIM, HEADS, RPC(Pursuit(2)), attn_drop=0.5, proj_drop=0.5)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_kernel_pca_values_survive_few_tokens():
    layer = SelfAttention(DIM, HEADS, KernelPCAValues())
    for n in (1, 2, 5):
        assert torch.isfinite(layer(torch.randn(B, n, DIM))).all()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: SelfAttention(25, 3), "dim is 25 and num_heads is 3"),
        (lambda: SelfAttention(24, 3, "rpc"), "mechanism is 'rpc'; expected an instance"),
        (lambda: SelfAttention(24, 3, RPC), "expected an instance such as Softmax"),
        (lambda: RPC("paper"), "pursuit is 'paper'; expected a Pursuit"),
        (lambda: KernelPCAValues(0), "n_components is 0"),
        (lambda: SelfAttention(DIM, HEADS)(torch.zeros(N, DIM)), r"\(11, 24\); expected \(B, N, 24\)"),
        (
            lambda: SelfAttention(DIM, HEADS)(torch.zeros(B, N, DIM), key_mask=torch.ones(B, 1, N, dtype=torch.bool)),
            r"\(2, 1, 11\); expected \(2, 11\)",
        ),
        (
            lambda: SelfAttention(DIM, HEADS, KernelPCAValues())(
                torch.zeros(B, N, DIM), key_mask=torch.ones(B, N, dtype=torch.bool)
            ),
            "takes no key_mask",
        ),
        (lambda: RPC(form="sym"), "form is 'sym'"),
        (lambda: Scaled("beta"), "kind is 'beta'"),
        (lambda: Scaled("matrix"), "pass num_tokens"),
        (lambda: SelfAttention(DIM, HEADS, KernelPCAValues())(torch.zeros(B, N, DIM), is_causal=True), "is_causal"),
        (
            lambda: SelfAttention(DIM, HEADS, Scaled("alpha"))(
                torch.zeros(B, N, DIM), is_causal=True, cache=pa.PursuitCache()
            ),
            "cannot decode from a cache",
        ),
        (
            lambda: SelfAttention(DIM, HEADS, Scaled("matrix", num_tokens=N + 1))(torch.zeros(B, N, DIM)),
            "mixing has shape",
        ),
    ],
)
def test_bad_input_is_named(build, says):
    with pytest.raises(InputError, match=says):
        build()


def test_symmetric_tiny_saves_the_query_projection_of_every_layer():
    """SymViT-tiny drops 12 × (192² + 192) = 444,672 parameters from DeiT-tiny's 5,717,416."""
    q = math.prod((192, 192)) + 192
    counts = [
        sum(p.numel() for p in SelfAttention(192, 3, mechanism).parameters()) for mechanism in (Softmax(), Symmetric())
    ]
    assert counts[0] - counts[1] == q
    assert 5_717_416 - 12 * q == 5_272_744
