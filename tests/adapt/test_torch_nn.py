"""`torch.nn.MultiheadAttention` and the encoders built on it, with their own conventions for masks."""

import math

import pytest
import torch
from torch import nn

import principal_attention as pa
from principal_attention import Pursuit

B, N, WIDTH, HEADS = 2, 9, 32, 4
INF = math.inf


def encoder(**options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, dropout=0.0, batch_first=True, **options)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=not options.get("norm_first", False))
    return model.double().eval()


@pytest.fixture
def x():
    return torch.randn(B, N, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("grad", [False, True], ids=["fast path", "with gradients"])
def test_the_encoders_own_kernel_is_never_taken_in_a_chosen_layer(x, grad):
    """In eval mode torch would run the layer in one fused kernel, without RPC-Attention."""
    model = encoder()
    with torch.set_grad_enabled(grad):
        plain = model(x)
        pa.robustify(model, pursuit=Pursuit(1, INF), layers="all")
        torch.testing.assert_close(model(x), plain)
        pa.robustify(model, pursuit=Pursuit(4, 0.3))
        changed = model(x)
        assert not torch.allclose(changed, plain)
        model.train()
        torch.testing.assert_close(model(x), changed)
        pa.restore(model.eval())
        assert torch.equal(model(x), plain)


@pytest.mark.parametrize("additive", [False, True])
@torch.no_grad()
def test_padding_given_to_an_encoder_changes_nothing(x, additive):
    """With nested tensors enabled, to which torch would convert a padded batch."""
    model = pa.robustify(encoder(), pursuit=Pursuit(4, 0.3), layers=[1])
    padded = torch.cat([x, 50 * torch.randn(B, 3, WIDTH, dtype=torch.float64)], 1)
    padding = (torch.arange(N + 3) >= N).expand(B, -1)  # True = to ignore
    mask = torch.zeros(B, N + 3, dtype=torch.float64).masked_fill(padding, -INF) if additive else padding
    torch.testing.assert_close(model(padded, src_key_padding_mask=mask)[:, :N], model(x))
    plain = pa.restore(model)
    assert type(plain) is nn.TransformerEncoder
    assert plain.use_nested_tensor


@pytest.mark.parametrize("boolean", [False, True])
@torch.no_grad()
def test_a_causal_mask_makes_mu_a_prefix(x, boolean):
    model = pa.robustify(encoder(norm_first=True), pursuit=Pursuit(4, 0.3), layers="all")
    mask = nn.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64)
    mask = mask < 0 if boolean else mask
    edited = x.clone()
    edited[:, 5:] += 1.0
    out = model(x, mask=mask)
    assert torch.equal(out[:, :5], model(edited, mask=mask)[:, :5])
    padding = torch.zeros(B, N, dtype=torch.bool)
    padding[0, 7:] = True
    additive = torch.zeros(B, N, dtype=torch.float64).masked_fill(padding, -INF)
    both = model(x, mask=mask, src_key_padding_mask=padding if boolean else additive)
    torch.testing.assert_close(both[0, :7], model(x[:, :7], mask=mask[:7, :7])[0])
    torch.testing.assert_close(out, model(x, mask=mask, is_causal=True))


@torch.no_grad()
def test_layouts_of_multihead_attention(x):
    """Batch first or second, unbatched input, and masks per head, compared with the original module."""
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    second = nn.MultiheadAttention(WIDTH, HEADS).double()
    second.load_state_dict(plain.state_dict())
    hidden = torch.rand(B * HEADS, N, N) > 0.7
    hidden[:, range(N), range(N)] = False
    calls = [
        (plain, (x, x, x), {}),
        (plain, (x, x, x), {"attn_mask": hidden}),
        (plain, (x, x, x), {"attn_mask": torch.randn(N, N, dtype=torch.float64)}),
        (plain, (x[0],) * 3, {}),
        (second, (x.transpose(0, 1),) * 3, {"key_padding_mask": torch.arange(N).expand(B, -1) > 6}),
    ]
    for module, (t, *_), options in calls:
        expected, weights = module(t, t, t, **options)
        pa.robustify(module, pursuit=Pursuit(1, INF))
        out, nothing = module(t, t, t, **options)
        torch.testing.assert_close(out, expected)
        assert weights is not None
        assert nothing is None  # RPC-Attention has no single attention matrix
        pa.restore(module)


@torch.no_grad()
def test_additive_padding_may_be_finite(x):
    """A bias of -1e9 hides a key and -2 weakens it, as in the original module."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    causal = torch.ones(N, N, dtype=torch.bool).triu(1)
    for value in (-2.0, -1e9, torch.finfo(torch.float64).min, -INF):
        padding = torch.zeros(B, N, dtype=torch.float64)
        padding[0, 6:] = value
        for mask in (None, torch.zeros(N, N).double().masked_fill(causal, -INF)):
            pa.restore(module)
            expected = module(x, x, x, key_padding_mask=padding, attn_mask=mask)[0]
            pa.robustify(module, pursuit=Pursuit(1, INF))
            torch.testing.assert_close(module(x, x, x, key_padding_mask=padding, attn_mask=mask)[0], expected)
        pa.robustify(module, pursuit=Pursuit(4, 0.3))
        if value < -1e8:
            short = x[:1, :6]
            padded = module(x, x, x, key_padding_mask=padding)[0][:1, :6]
            torch.testing.assert_close(padded, module(short, short, short)[0])


def test_attention_dropout_acts_in_training_only(x):
    module = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5, batch_first=True).double()
    pa.robustify(module, pursuit=Pursuit(2, 0.3))
    assert not torch.equal(module(x, x, x)[0], module(x, x, x)[0])
    module.eval()
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])


def test_a_decoder_keeps_its_cross_attention():
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, 1, 2, 32, dropout=0.0, batch_first=True).eval()
    a, b = torch.randn(B, 5, WIDTH), torch.randn(B, 7, WIDTH)
    plain = model(a, b)
    pa.robustify(model, pursuit=Pursuit(1, INF), layers="all")
    assert str(model).count("rpc=") + str(model).count("2 x TransformerDecoderLayer") == 3
    torch.testing.assert_close(model(a, b), plain)
