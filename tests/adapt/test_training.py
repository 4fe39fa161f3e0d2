"""Training a robustified model: checkpointing, compilers, mixed precision, several processes."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import principal_attention as pa
from families import build, run
from principal_attention import Pursuit

FAMILIES = ["timm vit", "timm beit", "bert", "hf vit", "gpt2", "llama", "torch.nn encoder"]
PURSUIT = Pursuit(3, 0.3)


def gradients(name, model):
    model.zero_grad()
    run(name, model, next(model.parameters()).dtype).square().mean().backward()
    return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}


def without_dropout(model):
    """In training mode, which checkpointing requires; repeated calls are equal."""
    for module in model.modules():
        for name in ("p", "dropout", "attention_dropout", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model.train()


@pytest.mark.parametrize("name", ["timm vit", "bert", "hf vit", "gpt2", "llama"])
def test_gradient_checkpointing_gives_the_same_gradients(name):
    model = without_dropout(pa.robustify(build(name, torch.float64), pursuit=PURSUIT, layers="all"))
    expected = gradients(name, model)
    if name == "timm vit":
        model.set_grad_checkpointing()
    else:
        model.gradient_checkpointing_enable()
    got = gradients(name, model)
    assert got.keys() == expected.keys()
    for key in got:
        torch.testing.assert_close(got[key], expected[key])


def test_checkpointing_by_hand():
    layer = pa.robustify(nn.MultiheadAttention(16, 2, batch_first=True).double(), pursuit=PURSUIT)
    x = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(layer(x, x, x)[0].square().sum(), x)
    for reentrant in (False, True):
        out = checkpoint(lambda x: layer(x, x, x)[0], x, use_reentrant=reentrant)
        out.square().sum().backward()
        torch.testing.assert_close(x.grad, plain)
        x.grad = None


@pytest.mark.parametrize("name", FAMILIES)
def test_bfloat16_autocast_trains(name):
    model = pa.robustify(build(name), pursuit=Pursuit(3, 0.3, "admm"))
    expected = run(name, model)
    with torch.autocast("cpu", torch.bfloat16):
        out = run(name, model)
        loss = out.float().square().mean()
    loss.backward()
    # bfloat16 has 8 bits: single roundings are 0.4%, and three layers of large random weights amplify them
    assert (out.float() - expected).abs().mean() < 0.2 * expected.abs().mean()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's compiler looks at it
@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_it_is_the_same_with_gradients(name):
    torch.compiler.reset()
    model = pa.robustify(build(name, torch.float64), pursuit=PURSUIT)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=name.startswith("timm"))
    weights = [p for p in model.parameters() if p.requires_grad]
    expected, got = (
        torch.autograd.grad(
            run(name, module, torch.float64).square().mean(), weights, allow_unused=True, materialize_grads=True
        )
        for module in (model, compiled)
    )
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")  # torch's own
@pytest.mark.parametrize("name", ["timm vit", "bert", "torch.nn encoder"])
@torch.no_grad()
def test_compiled_to_machine_code(name):
    torch.compiler.reset()
    model = pa.robustify(build(name), pursuit=PURSUIT)
    expected = run(name, model)
    got = run(name, torch.compile(model))
    assert (got - expected).abs().max() < 1e-4 * expected.abs().max()


def test_one_step_moves_the_weights_and_keeps_the_choice():
    model = pa.robustify(build("timm vit"), pursuit=PURSUIT, layers="all")
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = run("timm vit", model).square().mean()
    first.backward()
    optimizer.step()
    assert run("timm vit", model).square().mean() < first
    assert all(not torch.equal(before[f"blocks.{i}.attn.qkv.weight"], b.attn.qkv.weight) for i, b in
               enumerate(model.blocks))  # fmt: skip
    assert "rpc=Pursuit" in str(model)


DISTRIBUTED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
import principal_attention as pa
from families import build, inputs
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
for name, key in (("timm vit", "x"), ("bert", "input_ids")):
    model = pa.robustify(build(name, torch.float64), pursuit=pa.Pursuit(3, 0.3), layers="all")
    given = {k: v.double() if v.is_floating_point() else v for k, v in inputs(name).items()}
    def loss(module, part):
        out = module(**{k: v[part] for k, v in given.items()})
        return (out if isinstance(out, torch.Tensor) else out[0]).square().mean()
    plain = torch.autograd.grad(loss(model, slice(None)), list(model.parameters()), allow_unused=True)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    loss(wrapped, slice(rank, rank + 1)).backward()
    for p, g in zip(model.parameters(), plain):
        if g is not None:
            torch.testing.assert_close(p.grad, g)
dist.destroy_process_group()
"""


def test_two_processes_average_to_the_gradients_of_one(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DISTRIBUTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        [*command, os.path.dirname(__file__)], capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
