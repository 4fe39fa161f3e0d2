"""`capture` records every attention call, and the model's outputs stay bit for bit the same."""

import pytest
import timm
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, ViTConfig, ViTModel

import principal_attention as pa
from principal_attention.analysis.capture import capture
from principal_attention.errors import InputError

PURSUIT = pa.Pursuit(2, 0.5, "cleaned")


def vit(**options):
    return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5, **options).eval()


def ours(name, **options):
    import principal_attention.vision.models  # noqa: F401

    return timm.create_model(f"{name}_tiny_patch16_224", img_size=32, patch_size=4, depth=2, **options).eval()


def unfused():
    model = vit()
    for block in model.blocks:
        block.attn.fused_attn = False
    return model


def bert(kind="sdpa", cls=BertModel, config=BertConfig, **options):
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=50)
    return cls(config(**sizes | options, attn_implementation=kind)).eval()


def encoder(**options):
    layer = nn.TransformerEncoderLayer(32, 4, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, **{"enable_nested_tensor": False} | options).eval()


def scaled():
    model = ours("scaled_vit", kind="alpha")
    for block in model.blocks:
        nn.init.constant_(block.attn.mixing, 0.7)
    return model


IMAGE, TOKENS, VECTORS = torch.randn(2, 3, 32, 32), torch.randint(0, 50, (2, 9)), torch.randn(2, 9, 32)
MODELS = {
    "timm": (vit, IMAGE), "timm, written out": (unfused, IMAGE), "timm, norms": (lambda: vit(qk_norm=True), IMAGE),
    "bert": (bert, TOKENS), "bert, eager": (lambda: bert("eager"), TOKENS),
    "vit": (lambda: bert(cls=ViTModel, config=ViTConfig, image_size=32, patch_size=8), IMAGE),
    "torch": (encoder, VECTORS),
    "symvit": (lambda: ours("symvit"), IMAGE), "kpca_vit": (lambda: ours("kpca_vit"), IMAGE),
    "kpca_vit, 3": (lambda: ours("kpca_vit", n_components=3), IMAGE),
    "scaled, exact": (lambda: ours("scaled_vit", kind="exact"), IMAGE), "scaled, alpha": (scaled, IMAGE),
    "torch, nested": (lambda: encoder(enable_nested_tensor=True), VECTORS),
    "timm, bfloat16": (lambda: vit().bfloat16(), IMAGE.bfloat16()),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_heads_are_seen_and_the_outputs_untouched(name):
    make, given = MODELS[name]
    torch.manual_seed(0)
    model, seen = make(), []
    with torch.no_grad():
        before = model(given)
        with capture(model, seen.append) as layers:
            during = model(given)
        after = model(given)
    assert layers == len(seen) == 2
    before, during, after = (x if torch.is_tensor(x) else x.last_hidden_state for x in (before, during, after))
    assert torch.equal(before, after)
    # torch's encoder layer has a fused kernel, which it does not use while a module is observed
    assert torch.equal(before, during) or (name.startswith("torch") and torch.allclose(before, during, atol=1e-5))
    for layer, heads in enumerate(seen):
        assert heads.layer == layer
        assert not heads.causal
        attended = (heads.queries.double() @ heads.keys.double().mT * heads.scale).softmax(-1) @ heads.values.double()
        precise = 1e-5 if heads.outputs.dtype == torch.float32 else 2e-2  # bfloat16 has 8 bits
        assert torch.allclose(attended, heads.outputs.double(), atol=precise)
        assert heads.scale == pytest.approx(heads.keys.shape[-1] ** -0.5)


@pytest.mark.parametrize("name", ["timm", "bert", "torch", "symvit"])
def test_what_robustify_put_in_is_seen_before_its_keys_are_cleaned(name):
    make, given = MODELS[name]
    torch.manual_seed(0)
    model, plain, robust = make(), [], []
    with torch.no_grad():
        with capture(model, plain.append):
            model(given)
        pa.robustify(model, pursuit=PURSUIT, layers=[0])
        with capture(model, robust.append):
            model(given)
    assert len(robust) == 2
    for part in ("queries", "keys", "values"):
        assert torch.allclose(getattr(robust[0], part), getattr(plain[0], part), atol=1e-6)
    assert not torch.allclose(robust[0].outputs, plain[0].outputs, atol=1e-4)


def test_padding_is_taken_off_sequence_by_sequence():
    torch.manual_seed(0)
    model, seen, alone = bert(), [], []
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    with torch.no_grad():
        with capture(model, seen.append):
            model(TOKENS, attention_mask=mask)
        with capture(model, alone.append):
            model(TOKENS[1:, :6])
    (first, whole), (second, short) = seen[1].sequences()
    assert (first, second) == (slice(0, 1), slice(1, 2))
    assert whole.keys.shape[-2] == 9
    assert torch.allclose(short.keys, alone[1].keys, atol=1e-5)
    assert torch.allclose(short.outputs, alone[1].outputs, atol=1e-5)
    (rows, both), *rest = alone[1].sequences()
    assert (rows, both is alone[1], rest) == (slice(0, 1), True, [])


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_is_known_in_every_precision(kind, dtype):
    model, seen = bert(kind).to(dtype), []
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0  # on the left
    with torch.no_grad(), capture(model, seen.append):
        model(TOKENS, attention_mask=mask)
    assert [len(part.keys[0, 0]) for _, part in seen[0].sequences()] == [5, 9]


@pytest.mark.parametrize("robust", [False, True])
def test_a_padded_causal_batch_is_causal_and_padded(robust):
    model, seen = bert(cls=GPT2Model, config=GPT2Config, n_embd=32, n_layer=2, n_head=4), []
    if robust:
        pa.robustify(model, pursuit=PURSUIT, layers="all")
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    with torch.no_grad(), capture(model, seen.append):
        model(TOKENS, attention_mask=mask)
    assert [heads.causal for heads in seen] == [True, True]
    assert [part.keys.shape[-2] for _, part in seen[0].sequences()] == [9, 6]


def test_causal_heads_say_so():
    model, seen = bert(cls=GPT2Model, config=GPT2Config, n_embd=32, n_layer=2, n_head=4), []
    with torch.no_grad(), capture(model, seen.append):
        model(TOKENS, use_cache=False)
    assert [heads.causal for heads in seen] == [True, True]
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    heads = seen[0]
    logits = (heads.queries @ heads.keys.mT * heads.scale).masked_fill(~mask, -torch.inf)
    assert torch.allclose(logits.softmax(-1) @ heads.values, heads.outputs, atol=1e-5)


def test_a_bias_is_refused_since_it_is_no_kernel_of_q_and_k():
    model = timm.create_model("vit_relpos_base_patch16_224", img_size=32, patch_size=8, depth=1, embed_dim=32,
                              num_heads=4, num_classes=2).eval()  # fmt: skip
    with torch.no_grad(), pytest.raises(InputError, match="layer 0 adds a bias"), capture(model, lambda heads: None):
        model(IMAGE)
    model(IMAGE)  # the observation has ended


class WrittenOut(nn.Module):
    """softmax(q kᵀ s) v with the scale after the product, and none of its own."""

    scale = None

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return ((q @ k.mT) * 32**-0.5).softmax(-1) @ v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_registered_module_may_scale_its_logits_itself(dtype):
    pa.adapt.register(WrittenOut)
    model, seen = nn.Sequential(WrittenOut()).to(dtype), []
    given = VECTORS[:, None].to(dtype)  # one head
    with torch.no_grad(), capture(model, seen.append):
        model(given)
    (heads,) = seen
    q, k, _ = model[0].qkv(given).chunk(3, -1)
    assert heads.scale == pytest.approx(32**-0.5)
    assert torch.allclose(heads.queries.to(dtype), q, rtol=2e-2)
    assert torch.equal(heads.keys, k)


def test_multihead_attention_over_other_sequences_is_refused():
    attention = nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad(), capture(attention, lambda heads: None):
        attention(VECTORS, VECTORS, VECTORS)
        with pytest.raises(InputError, match="the same tensor"):
            attention(VECTORS, VECTORS + 1, VECTORS + 1)
    biased = nn.MultiheadAttention(32, 4, add_bias_kv=True)
    with pytest.raises(InputError, match="plain self-attention"), capture(biased, lambda heads: None):
        pass
    hidden = torch.zeros(8, 9, 9, dtype=torch.bool)
    hidden[1, :, 5:] = True  # from one head only
    with torch.no_grad(), pytest.raises(InputError, match="layer 0"), capture(attention, lambda heads: None):
        attention(VECTORS, VECTORS, VECTORS, attn_mask=hidden)


@pytest.mark.parametrize("name", ["timm", "bert", "symvit"])
def test_one_capture_inside_another(name):
    make, given = MODELS[name]
    model, outer, inner = make(), [], []
    with torch.no_grad(), capture(model, outer.append):
        with capture(model, inner.append):
            model(given)
        model(given)
    assert (len(outer), len(inner)) == (4, 2)


@pytest.mark.parametrize("setting", [pa.TokenPursuit(), pa.TokenReweighting("l1"), pa.Temperature(0.7)])
def test_attention_that_kernel_pca_does_not_describe_is_refused(setting):
    model = pa.robustify(vit(), pursuit=setting, layers=[1])
    message = rf"layer 1 computes attention with {type(setting).__name__}\("
    with pytest.raises(InputError, match=message), capture(model, lambda heads: None):
        pass
    assert pa.restore(model)(torch.zeros(1, 3, 32, 32)).isfinite().all()


def test_a_model_without_attention_is_refused():
    with pytest.raises(InputError, match="holds no attention"), capture(nn.Linear(2, 2), lambda heads: None):
        pass


def test_a_model_is_as_before_after_an_error():
    model, seen = vit(), []

    def fail(heads):
        raise InputError("enough")

    with torch.no_grad():
        with pytest.raises(InputError, match="enough"), capture(model, fail):
            model(IMAGE)
        with capture(model, seen.append):
            model(IMAGE)
    assert len(seen) == 2
    assert not model.blocks[0].attn._forward_hooks
