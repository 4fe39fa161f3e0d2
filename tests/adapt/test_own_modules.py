"""Single modules: registration, masks, changes made by others, and refused cases."""

import math

import pytest
import torch
from torch import nn

import principal_attention as pa
from families import Ours, build, run
from principal_attention import DtypeError, InputError, Pursuit
from principal_attention.adapt import register

INF = math.inf


class Own(nn.Module):
    """A typical attention module of a user."""

    def __init__(self, width=16, calls=1):
        super().__init__()
        self.qkv, self.out, self.calls = nn.Linear(width, 3 * width), nn.Linear(width, width), calls

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        for _ in range(self.calls):
            v = nn.functional.scaled_dot_product_attention(q, k, value=v)
        return self.out(v.transpose(1, 2).flatten(2))


class Manual(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.mT, -1) @ x


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Manual()
        self.attn.__class__ = type("ManualAttention", (Manual,), {})

    def forward(self, x):
        return self.attn(x)


def test_unknown_models_get_a_sentence_that_says_what_to_do():
    with pytest.raises(InputError, match=r"1 × .*Own: if it attends once.*register\(Own\) first"):
        pa.robustify(nn.Sequential(Own()), pursuit=Pursuit())
    with pytest.raises(InputError, match=r"1 × .*ManualAttention: write pa.rpc_attention\(k, v, q=q, pursuit=…\)"):
        pa.robustify(Attentive(), pursuit=Pursuit())
    with pytest.raises(InputError, match=r"Sequential holds no attention .* nor any module that looks like attention"):
        pa.robustify(nn.Sequential(nn.Linear(2, 2)), pursuit=Pursuit())


def test_a_registered_class_of_the_users_own(monkeypatch):
    monkeypatch.setattr("principal_attention.adapt.registry._REGISTERED", set())
    register(Own)
    model, x = nn.Sequential(Own(), Own()), torch.randn(2, 7, 16)
    plain = model(x)
    pa.robustify(model, pursuit=Pursuit(1, INF), layers="all")
    torch.testing.assert_close(model(x), plain)
    pa.robustify(model, pursuit=Pursuit(4, 0.3), layers=[1])
    assert not torch.allclose(model(x), plain)
    assert torch.equal(pa.restore(model)(x), plain)
    for calls in (0, 2):
        twice = pa.robustify(Own(calls=calls), pursuit=Pursuit())
        with pytest.raises(InputError, match=f"Own.forward called scaled_dot_product_attention {calls} times"):
            twice(x)
    with pytest.raises(DtypeError, match="register the class"):
        register(Own())


class Single(nn.Module):
    """Attention with one head and no head dimension."""

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)


def test_a_module_without_a_dimension_of_heads(monkeypatch, make):
    monkeypatch.setattr("principal_attention.adapt.registry._REGISTERED", {Single})
    for shape in ((5, 7, 8), (7, 8)):
        (x,) = make(*shape, count=1)
        pursuit = Pursuit(3, 0.3, "authors")
        expected = pa.rpc_attention(x, x, q=x, pursuit=pursuit, model_dim=8)
        torch.testing.assert_close(pa.robustify(Single(), pursuit=pursuit)(x), expected)


def test_masks_given_to_a_module_reach_mu_and_every_pass():
    """Padding and a causal matrix mask in timm's `Attention`: unpadded rows depend on neither padded nor later keys."""
    from timm.layers import Attention

    torch.manual_seed(0)
    layer = pa.robustify(Attention(32, 4, qkv_bias=True).double(), pursuit=Pursuit(4, 0.3))
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    padded = torch.cat([x, 50 * torch.randn(2, 3, 32, dtype=torch.float64)], 1)
    seen = torch.arange(12) < 9
    alone = layer(x)
    zeros = torch.zeros(1, 1, 1, 12, dtype=torch.float64)
    additive = zeros.masked_fill(~seen, -INF)
    lowest = zeros.masked_fill(~seen, torch.finfo(torch.float64).min)  # what transformers writes for "never"
    square = seen[None, None, None].expand(2, 1, 12, 12)
    for mask in (seen[None, None, None], additive, lowest, square):
        torch.testing.assert_close(layer(padded, attn_mask=mask)[:, :9], alone)
    causal = torch.ones(12, 12, dtype=torch.bool).tril()
    torch.testing.assert_close(layer(padded, attn_mask=causal), layer(padded, is_causal=True))
    torch.testing.assert_close(layer(padded, attn_mask=causal)[:, :9], layer(x, is_causal=True))


def test_a_model_without_fused_attention_is_taken_as_well():
    model = build("timm vit")
    for block in model.blocks:
        block.attn.fused_attn = False
    plain = run("timm vit", model)
    pa.robustify(model, pursuit=Pursuit(1, INF), layers="all")
    torch.testing.assert_close(run("timm vit", model), plain, rtol=1e-5, atol=1e-6)
    pa.restore(model)
    assert not model.blocks[0].attn.fused_attn
    assert torch.equal(run("timm vit", model), plain)


def test_timm_keeps_the_choice_with_a_saved_model(tmp_path):
    import timm
    from timm.models import save_for_hf

    model = pa.robustify(timm.create_model("deit_tiny_patch16_224", depth=2), pursuit=Pursuit(4, INF, "cleaned"))
    save_for_hf(model, tmp_path, model_args={"depth": 2}, safe_serialization=True)
    with pytest.warns(UserWarning, match="records RPC-Attention, which timm does not put in"):
        loaded = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert "rpc" not in str(loaded)  # timm itself knows nothing of it
    assert str(pa.robustify(loaded)) == str(model)
    assert "notes" not in pa.restore(loaded).pretrained_cfg


def test_a_mask_of_one_column_and_minus_a_billion():
    """Common mask shapes and values: broadcast columns, and -1e9 instead of -inf."""
    from timm.layers import Attention

    torch.manual_seed(0)
    layer, x = Attention(32, 4).double(), torch.randn(2, 9, 32, dtype=torch.float64)
    column = torch.randn(2, 1, 9, 1, dtype=torch.float64)
    plain = layer(x, attn_mask=column)
    pa.robustify(layer, pursuit=Pursuit(1, INF))
    torch.testing.assert_close(layer(x, attn_mask=column), plain)
    pa.robustify(layer, pursuit=Pursuit(4, 0.3))
    edited = x.clone()
    edited[:, 5:] += 1
    for never in (-1e4, -1e9, torch.finfo(torch.float32).min, -INF):
        mask = torch.full((9, 9), never, dtype=torch.float64).triu(1)
        assert torch.equal(layer(x, attn_mask=mask)[:, :5], layer(edited, attn_mask=mask)[:, :5])


def test_what_others_did_to_a_module_is_respected():
    from torch.nn.utils import parametrize

    model = build("timm vit")
    model.blocks[0].attn.rpc_scale = 3.0  # an attribute of the user's own
    model.blocks[1].attn.forward = model.blocks[1].attn.forward
    pa.robustify(model, pursuit=Pursuit(4, 0.3))
    model.blocks[0].attn.fused_attn = False  # no effect while robustified, kept after restore
    out = run("timm vit", model)
    with pytest.raises(InputError, match="forward method of Attention was replaced on the instance"):
        pa.robustify(model, pursuit=Pursuit(4, 0.3), layers="all")
    assert torch.equal(run("timm vit", model), out)
    pa.restore(model)
    assert model.blocks[0].attn.rpc_scale == 3.0
    assert not model.blocks[0].attn.fused_attn
    layer = pa.robustify(nn.MultiheadAttention(16, 2), pursuit=Pursuit())
    parametrize.register_parametrization(layer, "in_proj_weight", nn.Identity())
    with pytest.raises(InputError, match="class of a robustified module was changed again"):
        pa.restore(layer)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@torch.no_grad()
def test_traced_it_is_the_same():
    model = pa.robustify(build("timm vit"), pursuit=Pursuit(3, 0.3, "authors"))
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(torch.jit.trace(model, x, check_trace=False)(x), model(x))


def test_small_mistakes_get_a_sentence():
    import numpy as np

    model = build("timm vit")
    pa.robustify(model, pursuit=Pursuit(), layers=[np.int64(2)])
    assert "rpc" in str(model.blocks[2])
    with pytest.raises(DtypeError, match=r"expected a torch\.nn\.Module"):
        pa.restore("model")
    model.pretrained_cfg["notes"] = ("principal-attention: {broken",)
    with pytest.raises(InputError, match=r"the recorded choice of RPC-Attention is '\{broken'"):
        pa.robustify(model)


def test_modules_that_cannot_be_right_are_refused():
    for options in (dict(add_bias_kv=True), dict(add_zero_attn=True), dict(kdim=8, vdim=8)):
        with pytest.raises(InputError, match="add_bias_kv, add_zero_attn, kdim or vdim"):
            pa.robustify(nn.MultiheadAttention(16, 2, **options), pursuit=Pursuit())
    layer = pa.robustify(nn.MultiheadAttention(16, 2), pursuit=Pursuit())
    with pytest.raises(InputError, match="the same tensor for all three"):
        layer(torch.randn(5, 1, 16), torch.randn(5, 1, 16), torch.randn(5, 1, 16))

    class Doubled(nn.MultiheadAttention):
        def forward(self, x):
            return super().forward(2 * x, 2 * x, 2 * x)

    with pytest.raises(InputError, match="Doubled holds no attention that robustify knows"):
        pa.robustify(Doubled(16, 2), pursuit=Pursuit())
    with pytest.raises(InputError, match=r"computes Scaled\("):
        pa.robustify(Ours(pa.Scaled()), pursuit=Pursuit())
