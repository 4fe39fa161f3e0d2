"""The paper's vision transformers: parameters, saving and loading."""

import json
import math

import principal_attention as pa  # isort: skip (first: helps torchvision, and with it timm, past a broken build)
import pytest
import timm
import torch

from principal_attention.vision.models import NAMES, PrincipalViT

DEIT_TINY = 5_717_416
COUNTS = {
    "symvit_tiny_patch16_224": 5_272_744,  # one Linear(192 → 384) for k and v
    "rpc_symvit_tiny_patch16_224": 5_272_744,
    "rpc_asymvit_tiny_patch16_224": DEIT_TINY,
    "scaled_vit_tiny_patch16_224": DEIT_TINY + 12,  # one α a layer
    "kpca_vit_tiny_patch16_224": 5_272_744,  # q and k, no v
}
SMALL = dict(img_size=8, patch_size=2, in_chans=1, embed_dim=12, depth=3, num_heads=3, num_classes=4)


def small(kind, /, **options):
    return timm.create_model(f"{kind}_tiny_patch16_224", **SMALL | options).eval()


def mechanisms(model):
    return [block.attn.mechanism for block in model.blocks]


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters_are_counted_as_in_the_paper(name, count):
    assert sum(p.numel() for p in timm.create_model(name).parameters()) == count


def test_the_learned_matrix_adds_one_weight_a_pair_of_tokens():
    model = timm.create_model("scaled_vit_tiny_patch16_224", kind="matrix")
    assert sum(p.numel() for p in model.parameters()) == DEIT_TINY + 1_397_124 == DEIT_TINY + 12 * 3 * 197**2


def test_every_size_is_registered_with_timm():
    assert len(NAMES) == 15
    assert set(NAMES) <= set(timm.list_models())
    base = timm.create_model("symvit_base_patch16_224", depth=1)
    assert (base.embed_dim, base.blocks[0].attn.num_heads) == (768, 12)


@pytest.mark.parametrize("kind", ["symvit", "rpc_symvit", "rpc_asymvit", "scaled_vit", "kpca_vit"])
@pytest.mark.parametrize("options", [SMALL, SMALL | dict(img_size=32, patch_size=4, in_chans=3), {}])
def test_any_image_and_patch_size(kind, options):
    model = timm.create_model(f"{kind}_tiny_patch16_224", **{"depth": 2} | options)
    images = torch.randn(2, *model.pretrained_cfg["input_size"])
    logits = model(images)
    assert logits.shape == (2, options.get("num_classes", 1000))
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_pursuit_goes_where_it_is_told():
    paper = pa.RPC(pa.Pursuit(4, 4.0, "paper"), "symmetric")
    assert mechanisms(small("rpc_symvit")) == [paper, pa.Symmetric(), pa.Symmetric()]
    every = pa.RPC(pa.Pursuit(2, 3.0), "symmetric")
    assert mechanisms(small("rpc_symvit", pursuit=dict(iterations=2, lam=3.0), layers="all")) == [every] * 3
    each = mechanisms(small("rpc_symvit", pursuit={0: dict(iterations=6), 2: pa.Pursuit(5, preset="admm")}))
    assert [m.pursuit.iterations for m in (each[0], each[2])] == [6, 5]
    assert mechanisms(small("rpc_asymvit")) == [pa.RPC(paper.pursuit, "query"), pa.Softmax(), pa.Softmax()]
    assert mechanisms(small("rpc_asymvit", form="symmetric"))[0] == paper
    assert mechanisms(small("kpca_vit", n_components=2)) == [pa.KernelPCAValues(2)] * 3


def test_with_nothing_to_shrink_each_kind_is_the_one_it_varies():
    """With the same weights, one pass at an infinite threshold, or no mixing, equals plain attention."""
    torch.manual_seed(1)
    images, plain = torch.randn(3, 1, 8, 8), small("symvit")
    same = small("rpc_symvit", pursuit=dict(iterations=1, lam=math.inf))
    same.load_state_dict(plain.state_dict())
    torch.testing.assert_close(same(images), plain(images))
    theirs = timm.create_model("deit_tiny_patch16_224", **SMALL).eval()
    for kind, options in (("rpc_asymvit", {"pursuit": pa.Pursuit(1, math.inf)}), ("scaled_vit", {"kind": "alpha"})):
        ours = small(kind, **options)
        missing = ours.load_state_dict(theirs.state_dict(), strict=False).missing_keys
        assert all(key.endswith("mixing") for key in missing)
        torch.testing.assert_close(ours(images), theirs(images))


def test_initialised_as_deit():
    torch.manual_seed(0)
    model = timm.create_model("rpc_symvit_tiny_patch16_224")
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert not weight.any() or name == "patch_embed.proj.bias"
        elif weight.ndim == 2 or name in ("pos_embed", "cls_token"):
            # 192 entries at the least: the deviation of a truncated normal is known to about 5%, and we ask for 15%
            assert weight.std().item() == pytest.approx(0.02, rel=0.15), name


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("symvit", {}),
        ("rpc_symvit", {"pursuit": pa.Pursuit(3, math.inf, "cleaned", dual_sign=-1), "layers": [0, 2]}),
        ("rpc_asymvit", {"form": "symmetric", "in_chans": 2}),
        ("scaled_vit", {"kind": "matrix", "img_size": 10}),
        ("kpca_vit", {"n_components": 2, "num_classes": 1000}),
    ],
)
def test_saved_and_loaded_each_way_it_is_the_same_model(kind, options, tmp_path):
    model = small(kind, **options)
    model.save_pretrained(tmp_path)
    card = json.loads((tmp_path / "config.json").read_text())
    assert card["architecture"] == f"{kind}_tiny_patch16_224"
    images = torch.randn(2, *model.pretrained_cfg["input_size"])
    weights = tmp_path / "model.safetensors"
    for loaded in (
        PrincipalViT.from_pretrained(tmp_path),
        timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval(),
        timm.create_model(f"{kind}_tiny_patch16_224", **SMALL | options, checkpoint_path=weights).eval(),
    ):
        assert mechanisms(loaded) == mechanisms(model)
        assert torch.equal(loaded(images), model(images))


def test_robustify_takes_them():
    model, images = small("symvit"), torch.randn(2, 1, 8, 8)
    before = model(images)
    pa.robustify(model, pursuit=pa.Pursuit(3, 0.1), layers="all")
    assert not torch.allclose(model(images), before)
    assert torch.equal(pa.restore(model)(images), before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pursuit": {"iterations": 0}}, "iterations is 0"),
        ({"pursuit": {"iteration": 4}}, "a pursuit has no field 'iteration'"),
        ({"layers": [7]}, "layer 7 was chosen; the model's attention layers are 0 to 2"),
        ({"pretrained": True}, "no published weights of rpc_symvit_tiny_patch16_224"),
    ],
)
def test_wrong_options_are_named(options, sentence):
    with pytest.raises(pa.InputError, match=sentence):
        small("rpc_symvit", **options)


def test_a_folder_that_is_no_model_is_named(tmp_path):
    with pytest.raises(pa.InputError, match=r"holds no config.json"):
        PrincipalViT.from_pretrained(tmp_path)
    small("symvit").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(pa.InputError, match="cannot be read"):
        PrincipalViT.from_pretrained(tmp_path)
