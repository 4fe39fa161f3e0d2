"""Token pursuit in models: identities, what it does to a gross token, statistics as buffers, state between layers."""

import copy
import io
import pickle
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import principal_attention as pa
from families import FAMILIES, HEADS, TEXT, TRANSFORMERS, WIDTH, WORDS, N, build, inputs, run
from principal_attention import DtypeError, InputError, TokenPursuit
from principal_attention.adapt.condemned import watch_excess
from principal_attention.adapt.models import attention_modules, prefix_tokens

EVERY = pytest.mark.parametrize("name", FAMILIES)
BUFFERS = ("rpc_whiten", "rpc_shift", "rpc_median", "rpc_threshold")


def clean(name, dtype=torch.float32, count=16, seed=5):
    """Calibration data of a family."""
    generator = torch.Generator().manual_seed(seed)
    if name in TEXT:
        ids = torch.randint(3, WORDS, (count, N), generator=generator)
        return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]
    if name.startswith(("torch.nn", "ours")):
        return torch.randn(count, N, WIDTH, dtype=dtype, generator=generator)
    return torch.randn(count, 3, 32, 32, dtype=dtype, generator=generator)


def calibrated(name, dtype=torch.float32, layers="all", **options):
    model = build(name, dtype)
    return pa.robustify(model, pursuit=TokenPursuit(**options), layers=layers, calibrate=clean(name, dtype))


@EVERY
@torch.no_grad()
def test_without_a_penalty_it_is_the_untouched_model_and_restore_is_exact(name):
    model = build(name)
    plain, keys, text = run(name, model), list(model.state_dict()), str(model)
    for setting in (TokenPursuit(strength=0), pa.Temperature(1.0), pa.TokenReweighting("mcp", iterations=0)):
        data = clean(name) if isinstance(setting, TokenPursuit) else None
        assert pa.robustify(model, pursuit=setting, layers="all", calibrate=data) is model
        # 1e-5 of the scale: a bias of zeros takes another kernel, whose sums are in another order
        assert (run(name, model) - plain).abs().max() <= 1e-5 * plain.abs().max()
        more = [key for key in model.state_dict() if key not in keys]
        assert {key.rpartition(".")[2] for key in more} == (set(BUFFERS) if data is not None else set())
    pa.robustify(model, pursuit=TokenPursuit(0.5), layers="all", calibrate=clean(name))
    assert (run(name, model) - plain).abs().max() > 1e-3 * plain.abs().max()  # and it does something otherwise
    pa.restore(model)
    assert list(model.state_dict()) == keys
    assert str(model) == text
    assert torch.equal(run(name, model), plain)


@pytest.mark.parametrize("name", ["timm vit", "hf vit", "torchvision vit", "torch.nn encoder", "ours, symmetric"])
@torch.no_grad()
def test_without_calibration_each_input_is_measured_by_itself(name):
    model = pa.robustify(build(name), pursuit=TokenPursuit(0.6), layers=[0])
    assert not {key.rpartition(".")[2] for key in model.state_dict()} & set(BUFFERS)
    out = run(name, model)
    assert not torch.allclose(out, run(name, build(name)))
    given = inputs(name)
    (key,) = given
    alone = torch.cat([_first(model(**{key: x[None]})) for x in given[key]])
    torch.testing.assert_close(alone, out, rtol=1e-4, atol=1e-5)  # float32 sums of other shapes


def _first(out):
    return out if isinstance(out, torch.Tensor) else out[0]


@pytest.mark.parametrize("layers", [[0], [0, 1, 2], [1]])
@torch.no_grad()
def test_a_gross_token_loses_all_attention_in_this_and_all_later_layers(layers):
    """Other tokens then have the outputs of a model that masks the token from the first chosen layer on."""
    model = pa.robustify(build("ours").double(), pursuit=TokenPursuit(), layers=layers,
                         calibrate=clean("ours", torch.float64, 300))  # fmt: skip
    plain, x = build("ours").double(), inputs("ours", torch.float64)["x"]
    x[:, 5] = 1e3
    others = torch.arange(N) != 5
    expected = x
    for index, layer in enumerate(plain.layers):
        expected = layer(expected, key_mask=others[None] if index >= layers[0] else None)
    if layers[0] == 0:
        torch.testing.assert_close(model(x)[:, others], expected[:, others])
        with watch_excess(model) as excesses:
            model(x)
        assert len(excesses) == len(layers)
        assert (excesses[0][:, 5] > 10).all()
    text = str(model)
    assert text.count("TokenPursuit(") == len(layers)
    assert [hasattr(layer, "rpc_pursuit") for layer in model.layers] == [i >= layers[0] for i in range(3)]


def test_class_and_register_tokens_are_left_alone():
    import timm

    assert {name: prefix_tokens(build(name)) for name in ("timm vit", "timm deit", "timm relpos", "hf vit", "hf deit",
            "bert", "gpt2", "torchvision vit", "ours")} == {
        "timm vit": 1, "timm deit": 2, "timm relpos": 0, "hf vit": 1, "hf deit": 2, "bert": 1, "gpt2": 1,
        "torchvision vit": 1, "ours": 0,
    }  # fmt: skip
    registers = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, reg_tokens=4)
    assert prefix_tokens(torch.nn.Sequential(registers)) == 5
    model = calibrated("timm deit")
    assert model.blocks[0].attn.rpc_pursuit.prefix == 2
    with torch.no_grad():
        model.cls_token.fill_(1e4)
        with watch_excess(model) as excesses:
            run("timm deit", model)
    assert (excesses[0][:, :2] == -1).all()
    assert pa.robustify(model, pursuit=TokenPursuit(prefix=7)).blocks[0].attn.rpc_pursuit.prefix == 7


@torch.no_grad()
def test_calibration_takes_many_forms_and_leaves_the_model_as_it_was():
    data = clean("timm vit")
    model = build("timm vit").train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    found = []
    for form in (data, data.split(16), [(b, torch.zeros(len(b))) for b in data.split(5)], (b for b in data.split(3)),
                 [[b, None] for b in data.split(8)], ({"x": b} for b in data.split(4))):  # fmt: skip
        pa.robustify(model, pursuit=TokenPursuit(), layers=[0, 2], calibrate=form)
        assert [module.training for module in model.modules()] == modes
        found.append({key: x for key, x in model.state_dict().items() if "rpc_" in key})
    assert len(found[0]) == 8
    for other in found[1:]:  # float32 keys of other batch sizes; whitening multiplies their differences by up to 300
        for key, x in found[0].items():
            assert (other[key] - x).abs().max() <= 1e-3 * x.abs().max(), key
    assert model.blocks[0].attn.rpc_median > 0


@pytest.mark.parametrize("name", ["timm vit", "hf vit"])
def test_a_calibration_that_fails_changes_nothing(name):
    model = calibrated(name)
    before, text, state = run(name, model), str(model), copy.deepcopy(model.state_dict())
    setting = TokenPursuit(0.99)
    for data, error, says in (
        ([], InputError, "holds no batches"),
        (3, DtypeError, "calibrate is a int"),
        ("images/", DtypeError, "calibrate is a str"),
        (["images/"], DtypeError, "calibrate holds a str"),
        (clean(name)[:1], InputError, "pass more examples"),
        (clean(name) / 0, InputError, "NaN or infinity"),
        (
            [clean(name), torch.zeros(1, 3, 32, 30)],
            (RuntimeError, ValueError, AssertionError),
            "30|32",
        ),  # an error of the model itself
    ):
        with pytest.raises(error, match=says):
            pa.robustify(model, pursuit=setting, calibrate=data)
        assert str(model) == text
        assert torch.equal(run(name, model), before)
        assert all(torch.equal(x, state[key]) for key, x in model.state_dict().items())
    with pytest.raises(InputError, match="calibrate was given, which is for TokenPursuit"):
        pa.robustify(model, pursuit=pa.Pursuit(), calibrate=clean(name))
    with pytest.raises(InputError, match="a Pursuit and a TokenPursuit; expected one of them"):
        pa.robustify(model, pursuit={0: pa.Pursuit(), 1: setting})
    with pytest.raises(InputError, match="form is 'symmetric', which is for Pursuit"):
        pa.robustify(model, pursuit=setting, form="symmetric")
    assert str(model) == text
    pa.robustify(model, pursuit=pa.Pursuit(4, 0.3))  # and replaced by something else
    assert "rpc_shift" not in str(list(model.state_dict()))
    assert torch.equal(run(name, model), run(name, pa.robustify(build(name), pursuit=pa.Pursuit(4, 0.3))))


@pytest.mark.parametrize("name", ["timm vit", "timm beit", "bert", "gpt2", "torch.nn encoder", "ours"])
@torch.no_grad()
def test_copies_pickles_and_state_dicts_keep_the_statistics(name):
    model = calibrated(name, quantile=0.7)
    out = run(name, model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        states = {id(m.rpc_penalties) for m in attention_modules(twin)}
        assert len(states) == 1  # shared among its layers, and not with the original
        assert states != {id(attention_modules(model)[0].rpc_penalties)}
        assert torch.equal(run(name, twin), out)
        assert torch.equal(run(name, pa.restore(twin)), run(name, build(name)))
    torch.manual_seed(7)
    other = FAMILIES[name]().eval()
    pa.robustify(other, pursuit=TokenPursuit(0.7), layers="all", calibrate=clean(name, seed=9))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(run(name, other), out)
    given = {key: x.double() if x.is_floating_point() else x for key, x in inputs(name).items()}
    double = _first(copy.deepcopy(model).double()(**given))
    double = double[given["attention_mask"].bool()] if "attention_mask" in given else double
    assert (double - out).abs().max() < 1e-2 * out.abs().max()  # a penalty multiplies errors of keys by κ/θ
    assert run(name, model.bfloat16(), torch.bfloat16).isfinite().all()


@torch.no_grad()
def test_autocast_and_batches_of_other_sizes():
    model = calibrated("timm vit", quantile=0.7)
    x = inputs("timm vit")["x"]
    out = model(x)
    assert torch.equal(model(x), out)
    # Batches of other shapes round differently; strength 20 and two layers enlarge that to some 1e-5.
    torch.testing.assert_close(model(torch.cat([x, clean("timm vit")]))[:2], out, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert (model(x) - out).abs().max() < 0.3 * out.abs().max()
    with torch.inference_mode():
        torch.testing.assert_close(model(x), out)


def test_a_forward_pass_that_was_interrupted_leaves_no_trace():
    model, x = calibrated("timm vit", quantile=0.6, layers=[0, 1]), inputs("timm vit")["x"]
    out = model(x)

    def stop(*_):
        raise RuntimeError("stop")

    handle = model.blocks[1].mlp.register_forward_hook(stop)
    with pytest.raises(RuntimeError, match="stop"):
        model(clean("timm vit"))
    handle.remove()
    assert torch.equal(model(x), out)
    assert not attention_modules(model)[0].rpc_penalties._passes  # no graph is kept after a whole pass
    model.train()
    assert torch.equal(model(x), out)  # this model has no dropout
    with torch.no_grad():  # without gradients the bias goes through another kernel
        torch.testing.assert_close(model(x), out, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_threads_do_not_mix_their_penalties():
    model = calibrated("timm vit", quantile=0.6)
    images = clean("timm vit", count=12, seed=8).split(3)
    expected, found = [model(x) for x in images], {}

    def work(number):
        with torch.no_grad():
            for _ in range(5):
                found[number] = model(images[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        torch.testing.assert_close(found[number], expected[number])


def test_gradients_are_those_of_the_outputs():
    """Through distances, median, threshold and the penalties of earlier layers, by finite differences."""
    x = torch.randn(1, N, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for data in (clean("ours", torch.float64), None):
        model = pa.robustify(build("ours").double(), pursuit=TokenPursuit(0.6, 2.0), layers=[0, 1], calibrate=data)
        model.requires_grad_(False)
        some = torch.zeros_like(x)
        some[:, ::4, ::7] = 1  # a few directions, for speed

        def loss(step, model=model, some=some):
            return model(0.1 * x + step * some).square().sum()

        step = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(loss, (step,), rtol=1e-4)


def test_checkpointing_of_the_whole_model_works_and_of_single_layers_is_refused():
    model, x = calibrated("timm vit", torch.float64, quantile=0.6), inputs("timm vit", torch.float64)["x"]

    def gradients(run):
        model.zero_grad()
        run().square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    plain = gradients(lambda: model(x))
    for reentrant in (False, True):
        x.requires_grad_(reentrant)
        for a, b in zip(gradients(lambda r=reentrant: checkpoint(model, x, use_reentrant=r)), plain, strict=True):
            torch.testing.assert_close(a, b)
    model.set_grad_checkpointing(True)
    with pytest.raises(InputError, match="activation checkpointing of single layers"):
        gradients(lambda: model(x))
    model.set_grad_checkpointing(False)
    for a, b in zip(gradients(lambda: model(x)), plain, strict=True):
        torch.testing.assert_close(a, b)
    hf = calibrated("hf vit", quantile=0.6)
    pa.robustify(model, pursuit=pa.TokenReweighting("l1"), layers="all")  # the controls keep no state
    model.set_grad_checkpointing(True)
    gradients(lambda: model(x))
    assert hf(**inputs("hf vit")).logits.isfinite().all()


@torch.no_grad()
def test_temperature_divides_the_logits_and_nothing_else():
    x = inputs("ours", torch.float64)["x"]
    layer = pa.SelfAttention(WIDTH, HEADS).double()
    hot, warm = pa.robustify(copy.deepcopy(layer), pursuit=pa.Temperature(2.5)), copy.deepcopy(layer)
    warm.qkv.weight[:WIDTH] /= 2.5
    warm.qkv.bias[:WIDTH] /= 2.5
    bias = torch.randn(N, N, dtype=torch.float64)
    torch.testing.assert_close(hot(x, attn_mask=bias), warm(x, attn_mask=bias))


def test_what_cannot_be_combined_is_refused():
    made = torch.nn.Sequential(pa.SelfAttention(8, 2, pa.RPC(pa.Pursuit(2), "query")))
    with pytest.raises(InputError, match="not combined with token pursuit"):
        pa.robustify(made, pursuit=TokenPursuit())
    layer = pa.robustify(pa.SelfAttention(8, 2), pursuit=pa.Temperature(0.7))
    with pytest.raises(InputError, match=r"Temperature\(value=0.7\) was given a PursuitCache"):
        layer(torch.randn(1, 2, 8), is_causal=True, cache=pa.PursuitCache())
    model = calibrated("ours")
    with pytest.raises(InputError, match="needs the same tokens in all layers"):
        model.layers[1](model.layers[0](inputs("ours")["x"])[:, 1:])
    with pytest.raises(InputError, match="has no TokenPursuit"), watch_excess(build("ours")):
        pass


@torch.no_grad()
def test_watching_without_the_gates_is_the_plain_model():
    name = "timm vit"
    model, plain = calibrated(name, quantile=0.6), build(name)
    with watch_excess(model, gated=False) as excesses:
        open_ = run(name, model)
    torch.testing.assert_close(open_, run(name, plain), rtol=1e-4, atol=1e-4)
    assert [e.shape for e in excesses] == [(2, 17)] * 3
    assert not torch.allclose(run(name, model), open_, rtol=1e-4, atol=1e-4)
    assert len(excesses) == 3


def test_every_transformers_family_names_its_layers():
    for name in TRANSFORMERS:
        model = pa.robustify(build(name), pursuit=TokenPursuit(), layers=[1])
        text = str(model)
        assert text.count("rpc=TokenPursuit(") == 1
        assert text.count("rpc=Suppression()") == 1
        assert list(model.config.rpc["layers"]) == ["1"]


@pytest.mark.parametrize("setting", [TokenPursuit(0.7), pa.TokenReweighting("huber"), pa.Temperature(0.7)])
@torch.no_grad()
def test_an_exported_model_is_the_same(setting):
    data = clean("timm vit") if isinstance(setting, TokenPursuit) else None
    model = pa.robustify(build("timm vit"), pursuit=setting, layers=[0, 1], calibrate=data)
    x = inputs("timm vit")["x"]
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))
