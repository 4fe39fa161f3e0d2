"""`robustify` and `restore` on every family: identities, and what they change."""

import copy
import io
import math
import pickle

import pytest
import torch

import principal_attention as pa
from families import FAMILIES, HEADS, TRANSFORMERS, build, run
from principal_attention import DtypeError, InputError, Pursuit
from principal_attention.adapt.choice import Choice

INF = math.inf
EVERY = pytest.mark.parametrize("name", FAMILIES)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@EVERY
@torch.no_grad()
def test_without_shrinkage_it_is_the_untouched_model_and_restore_is_exact(name):
    model = build(name)
    plain, before, text = run(name, model), weights(model), str(model)
    for preset, n in [("paper", 1), ("authors", 1), ("admm", 1), ("cleaned", 1), ("cleaned", 2), ("cleaned", 5)]:
        for layers in ("first", "all"):
            assert pa.robustify(model, pursuit=Pursuit(n, INF, preset), layers=layers) is model
            # 1e-5 of the scale: masks are added in another order, the sums are the same
            assert (run(name, model) - plain).abs().max() <= 1e-5 * plain.abs().max()
    pa.robustify(model, pursuit=Pursuit(4, 0.3), layers="all")
    assert (run(name, model) - plain).abs().max() > 1e-3 * plain.abs().max()  # a finite threshold changes the outputs
    after = weights(model)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert pa.restore(model) is model
    assert str(model) == text
    assert torch.equal(run(name, model), plain)


@EVERY
@torch.no_grad()
def test_each_layer_gets_its_own_pursuit_and_print_shows_it(name):
    model = build(name)
    pa.robustify(model, pursuit={0: Pursuit(3, 0.2, "cleaned"), 2: Pursuit(2, INF, "admm")})
    text = str(model)
    form = "symmetric" if name == "ours, symmetric" else "query"
    assert text.count("rpc=Pursuit(") == 2
    assert text.index("rpc=Pursuit(iterations=3, lam=0.2, preset='cleaned'") < text.index("rpc=Pursuit(iterations=2")
    assert text.count(f"form='{form}'") == 2
    by_dict = run(name, model)
    one, other = (build(name) for _ in range(2))
    pa.robustify(one, pursuit=Pursuit(3, 0.2, "cleaned"), layers=[0])
    pa.robustify(other, pursuit=Pursuit(2, INF, "admm"), layers=[2])
    assert not torch.equal(run(name, one), by_dict)
    assert not torch.equal(run(name, other), by_dict)
    pa.robustify(one, pursuit={2: Pursuit(2, INF, "admm"), 0: Pursuit(3, 0.2, "cleaned")})  # a second call replaces
    assert torch.equal(run(name, one), by_dict)


@EVERY
def test_gradients_reach_every_weight_of_a_chosen_layer(name):
    model = build(name).double()
    pa.robustify(model, pursuit=Pursuit(3, 0.5, "admm"), layers="all", form="auto")
    run(name, model, torch.float64).square().sum().backward()
    projections = [p for n, p in model.named_parameters() if p.ndim > 1 and any(w in n for w in ("attn", "attention"))]
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in projections)


@pytest.mark.parametrize("name", ["timm vit", "timm beit", "bert", "llama", "torch.nn encoder", "ours"])
@torch.no_grad()
def test_copies_pickles_and_state_dicts_keep_it(name):
    model = pa.robustify(build(name), pursuit=Pursuit(4, 0.3))
    out = run(name, model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(run(name, twin), out)
        assert str(twin) == str(model)
        assert torch.equal(run(name, pa.restore(twin)), run(name, build(name)))
    torch.manual_seed(7)
    other = pa.robustify(FAMILIES[name]().eval(), pursuit=Pursuit(4, 0.3))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(run(name, other), out)
    plain = FAMILIES[name]().eval()
    plain.load_state_dict(model.state_dict())  # the same keys: a plain model takes them
    assert torch.equal(run(name, plain), run(name, build(name)))


@pytest.mark.parametrize("name", ["timm vit", "bert", "gpt2", "llama", "torch.nn encoder", "ours"])
@torch.no_grad()
def test_the_symmetric_form_puts_the_keys_in_the_place_of_queries(name):
    """With an infinite threshold, `symmetric` equals the model with the key weights copied to the queries."""
    model = build(name)
    pa.robustify(model, pursuit=Pursuit(1, INF), layers="all", form="symmetric")
    symmetric = run(name, model)
    twin = build(name)
    for key, p in twin.named_parameters():
        if any(w in key for w in ("qkv.", "c_attn", "in_proj")):
            dim = 1 if "c_attn.weight" in key else 0
            _, k, v = p.chunk(3, dim)
            p.copy_(torch.cat([k, k, v], dim))
        for a, b in (("q_proj", "k_proj"), ("query", "key")):
            if f"{a}." in key:
                k = twin.get_parameter(key.replace(a, b))
                heads = k.unflatten(0, (-1, p.shape[0] // HEADS))  # llama shares each key head among two queries
                p.copy_(heads.repeat_interleave(HEADS // len(heads), 0).flatten(0, 1))
    expected = run(name, twin)
    assert (symmetric - expected).abs().max() < 1e-5 * expected.abs().max()


def test_the_choice_is_checked_before_anything_changes():
    model = pa.robustify(build("timm vit"), pursuit=Pursuit(4, 0.3))
    before = str(model)
    for options, error, says in (
        (dict(pursuit=4), DtypeError, "expected a Pursuit"),
        (dict(pursuit={0: "paper"}), DtypeError, "expected a Pursuit"),
        (dict(pursuit={3: Pursuit()}), InputError, "layer 3 was chosen; the model's attention layers are 0 to 2"),
        (dict(pursuit={}), InputError, "no layer was chosen"),
        (dict(pursuit=Pursuit(), layers=[]), InputError, "no layer was chosen"),
        (dict(pursuit=Pursuit(), layers=[0, -1]), InputError, "layer -1 was chosen"),
        (dict(pursuit=Pursuit(), layers=[True]), InputError, "layer True"),
        (dict(pursuit=Pursuit(), layers="last"), InputError, "expected 'first', 'all' or a list"),
        (dict(pursuit=Pursuit(), layers=2), InputError, "expected 'first', 'all' or a list"),
        (dict(pursuit={0: Pursuit()}, layers="all"), InputError, "whose keys are the layers"),
        (dict(pursuit=Pursuit(), form="asym"), InputError, "expected 'auto', 'query' or 'symmetric'"),
    ):
        with pytest.raises(error, match=says):
            pa.robustify(model, **options)
        assert str(model) == before
    with pytest.raises(DtypeError, match=r"expected a torch\.nn\.Module"):
        pa.robustify("deit_tiny_patch16_224", pursuit=Pursuit())
    with pytest.raises(InputError, match="has no queries"):
        pa.robustify(build("ours, symmetric"), pursuit=Pursuit(), form="query")
    with pytest.raises(InputError, match="no pursuit was given and the model's config records none"):
        pa.robustify(build("timm vit"))


def test_a_choice_goes_through_json_and_a_strangers_is_checked():
    choice = Choice({0: Pursuit(2, INF, "cleaned", mu=0.5), 2: Pursuit(4, 0.3, dual_sign=1, mu_grad=False)}, "query")
    assert Choice.from_json(choice.to_json(), 3) == choice
    good = {"iterations": 2, "lam": 1.0, "preset": "paper"}
    for wrong, says in (
        (None, "expected"),
        ({"form": "query"}, "expected"),
        ({"form": "query", "layers": {"x": good}}, "expected"),
        ({"form": "query", "layers": {"0": 3}}, "expected"),
        ({"form": "query", "layers": {"0": good | {"__class__": "os"}}}, "no field '__class__'"),
        ({"form": "query", "layers": {"0": good | {"iterations": -1}}}, "iterations is -1"),
        ({"form": "query", "layers": {"9": good}}, "layer 9 was chosen"),
        ({"form": "odd", "layers": {"0": good}}, "form is 'odd'"),
    ):
        with pytest.raises(InputError, match=says):
            Choice.from_json(wrong, 3)


def test_every_transformers_family_is_found_once_a_layer():
    for name in TRANSFORMERS:
        text = str(pa.robustify(build(name), pursuit=Pursuit(), layers="all"))
        assert text.count("rpc=Pursuit(") in (1, 3)  # equal layers are printed once, as "(0-2): 3 x"
        assert "3 x" in text
