"""Image classification as it is trained: what each part of a recipe does, and what bad data is answered with."""

import json
import subprocess
import sys
from pathlib import Path

import principal_attention as pa  # isort: skip (first: helps torchvision, and with it timm, past a broken build)
import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

from principal_attention._files import read_jsonl
from principal_attention.errors import InputError
from principal_attention.recipes import read_recipe
from principal_attention.training.batches import Place
from principal_attention.training.engine import make_optimizer, make_schedule
from principal_attention.training.images import ImageTask
from runs import QUICK


@pytest.fixture
def folders(tmp_path):
    """Grey squares in class folders, as ImageNet is laid out: train/CLASS/x.png, val/CLASS/x.png."""

    def make(per_class=12, classes=("dark", "light"), size=8):
        random = np.random.default_rng(0)
        for split in ("train", "val"):
            for number, name in enumerate(classes):
                folder = tmp_path / "data" / split / name
                folder.mkdir(parents=True)
                for i in range(per_class):
                    pixels = random.integers(100 * number, 100 * number + 100, (size, size, 3))
                    Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        return tmp_path / "data"

    return make


PLAIN = (
    "model.options.depth=2", "model.options.embed_dim=24", "model.options.in_chans=3", "schedule.epochs=2",
    "schedule.warmup_epochs=1", "training.batch_size=8", "training.log_every=1",
)  # fmt: skip


def test_it_learns_class_folders_and_the_run_is_a_model(quick, folders, tmp_path):
    source = folders(per_class=24)
    done = quick(tmp_path / "run", f"data.source={source}", "schedule.epochs=8", base=PLAIN)
    assert done.metrics["top1"] == 1.0
    model = timm.create_model(f"local-dir:{tmp_path / 'run'}", pretrained=True).eval()
    dark, light = torch.full((1, 3, 8, 8), -0.8), torch.full((1, 3, 8, 8), 0.4)
    assert [model(x).argmax().item() for x in (dark, light)] == [0, 1]  # classes by sorted name
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert {r["metric"]: r["value"] for r in records}["top1"] == 1.0
    for key in ("model", "suite", "case", "metric", "value", "n", "seed"):
        assert all(key in record for record in records)


def test_a_finished_run_is_where_another_begins(quick, folders, tmp_path):
    """Fine-tuning at a rate of nearly nothing changes nearly nothing; a new number of classes gets a new last layer."""
    source = folders(per_class=24)
    quick(tmp_path / "first", f"data.source={source}", base=PLAIN)
    still = ("optimizer.lr=1e-12", "schedule.min_lr=0", "schedule.warmup_lr=0", "optimizer.weight_decay=0")
    words = ["model=null", f"init_from={tmp_path / 'first'}", "schedule.epochs=2", "schedule.warmup_epochs=0",
             "training.batch_size=8", *still]  # fmt: skip
    quick(tmp_path / "second", f"data.source={source}", base=words)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, atol=1e-9, rtol=0)
    quick(tmp_path / "third", "data.source=digits", "data.limit=64", base=[*words, "seed=1"])
    third = load_file(tmp_path / "third" / "model.safetensors")
    assert third["head.weight"].shape == (10, 24)
    torch.testing.assert_close(third["blocks.1.mlp.fc1.weight"], first["blocks.1.mlp.fc1.weight"], atol=1e-9, rtol=0)


def test_robustify_in_a_recipe_and_in_what_it_leaves(quick, tmp_path):
    rpc = ("robustify.preset=admm", "robustify.iterations=3", "robustify.layers=all")
    quick(tmp_path / "run", *rpc, recipe="digits/symvit", base=QUICK)
    task = ImageTask(read_recipe("digits/symvit", ["model=null", f"init_from={tmp_path / 'run'}"]))
    pursuits = [block.attn.rpc_pursuit for block in task.model.blocks]
    assert pursuits == [pa.Pursuit(3, 0.5, "admm")] * 2


def test_pretrained_weights_of_timm_and_of_transformers(tmp_path):
    small = dict(img_size=8, patch_size=2, in_chans=1, embed_dim=24, depth=2, num_heads=3, num_classes=10)
    theirs = timm.create_model("deit_tiny_patch16_224", **small).eval()
    timm.models.save_for_hf(theirs, tmp_path / "timm", safe_serialization=True)
    options = json.dumps({key: value for key, value in small.items() if key != "num_classes"})
    recipe = read_recipe("digits/symvit", ["model=null", f"init_from=timm:deit_tiny_patch16_224@{tmp_path / 'timm'}"])
    with pytest.raises(InputError, match="cannot be made"):
        ImageTask(recipe)  # of another size
    made = ImageTask(read_recipe("digits/symvit", ["model.name=deit_tiny_patch16_224", f"model.options={options}"]))
    assert made.model(torch.randn(2, 1, 8, 8)).shape == (2, 10)

    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48, image_size=8, patch_size=2,
        num_channels=1, num_labels=10,
    )  # fmt: skip
    network = ViTForImageClassification(config).eval()
    network.save_pretrained(tmp_path / "hf")
    overrides = ["model=null", f"init_from=hf:{tmp_path / 'hf'}", "robustify.lam=.inf", "robustify.layers=all"]
    task = ImageTask(read_recipe("digits/symvit", overrides))
    images = torch.randn(2, 1, 8, 8)
    # `cleaned` at an infinite threshold is plain attention
    torch.testing.assert_close(task.model.eval()(images), network(images).logits)
    task.classifier.save(tmp_path / "hf")  # and a run of it is read back as what it is
    again = ImageTask(read_recipe("digits/symvit", ["model=null", f"init_from={tmp_path / 'hf'}"]))
    assert again.model.eval()(images).equal(task.model(images))


def test_the_learning_rate_warms_up_and_falls_as_deits():
    recipe = read_recipe("imagenet/symvit_tiny")
    optimizer = make_optimizer(recipe, torch.nn.Linear(2, 2))
    schedule = make_schedule(recipe, optimizer, epoch_steps=1251)
    rates = []
    for epoch in range(300):
        schedule.step(epoch)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] == 1e-6
    assert rates[5] == pytest.approx(1e-5 + 0.5 * (1e-3 - 1e-5) * (1 + np.cos(np.pi * 5 / 300)))
    assert rates[-1] == pytest.approx(1e-5, rel=0.01)
    assert max(rates) == rates[5]


def test_weight_decay_spares_biases_norms_and_positions():
    recipe = read_recipe("digits/symvit", ["model.options.depth=1"])
    model = ImageTask(recipe).model
    spared, decayed = make_optimizer(recipe, model).param_groups
    assert (spared["weight_decay"], decayed["weight_decay"]) == (0.0, 0.05)
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in decayed["params"]} >= {"blocks.0.attn.kv.weight", "head.weight"}
    assert "pos_embed" in {names[id(p)] for p in spared["params"]}


def test_mixup_of_a_part_is_a_part_of_the_mixup():
    """One process with the whole batch and two with halves mix the same images alike."""
    words = [*QUICK, "augment.erasing=0", "training.batch_size=16"]
    task = ImageTask(read_recipe("digits/rpc_symvit", words))
    seen = []

    class Record(torch.nn.Linear):
        def forward(self, images):
            seen.append(images.flatten(1).clone())
            return super().forward(images.flatten(1))

    model = Record(64, 10)
    for world in (1, 2):
        for rank in range(world):
            task.loss(model, next(task.batches(range(3, 4), Place(rank, world))), step=3)
    whole, halves = seen[0], torch.cat(seen[1:])
    assert {tuple(row.tolist()) for row in whole} == {tuple(row.tolist()) for row in halves}


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_named(quick, folders, tmp_path, workers):
    source = folders()
    broken = source / "train" / "light" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(InputError, match=rf"image \d+ of split train \({broken}\) cannot be read") as wrong:
        quick(tmp_path / "run", f"data.source={source}", f"training.workers={workers}", base=PLAIN)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_label_out_of_range_is_named(quick, folders, tmp_path, workers):
    source = folders(classes=("a", "b", "c"))
    with pytest.raises(InputError, match=r"the label of image \d+ of split train is 2; the model has classes 0 to 1"):
        quick(tmp_path / "run", f"data.source={source}", f"training.workers={workers}",
              "model.options.num_classes=2", base=PLAIN)  # fmt: skip


def test_a_full_disk_is_one_sentence_and_the_checkpoint_before_is_intact(tmp_path):
    """The system refuses to write files of more than 100 kB: the error a full disk gives, without filling one."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "from principal_attention.cli import main; main()"
    )
    words = ["train", "digits/symvit", *QUICK, "model.options.embed_dim=96", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("principal train: the checkpoint of step 4 could not be written to")
    assert "make room and continue with --resume" in last
    assert "Traceback" not in done.stderr
    assert not list(Path(tmp_path, "checkpoints").iterdir())


def test_metrics_tell_the_share_of_time_spent_waiting_for_data(quick, tmp_path):
    quick(tmp_path, "training.ema=0.5")
    lines = [line for line in read_jsonl(tmp_path / "metrics.jsonl") if "loss" in line]
    assert all(0 <= line["waiting_share"] <= 1 and line["examples_per_second"] > 0 for line in lines)


def test_half_precision_needs_a_gpu_for_float16_only(quick, tmp_path):
    quick(tmp_path / "bf16", "training.precision=bfloat16", "schedule.epochs=2")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="float16, which needs a GPU; use bfloat16 or float32"):
            quick(tmp_path / "fp16", "training.precision=float16")
