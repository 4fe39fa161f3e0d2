"""Training of image classification: the keys of a recipe, and errors for bad data."""

import json
import subprocess
import sys
from pathlib import Path

import principal_attention as pa  # isort: skip (first: helps torchvision, and with it timm, past a broken build)
import numpy as np
import pytest
import timm
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors.torch import load_file

from principal_attention.errors import InputError
from principal_attention.plumbing.files import read_jsonl
from principal_attention.plumbing.processes import Place
from principal_attention.tasks import read_recipe
from principal_attention.tasks.image_classes.training import ImageTask
from principal_attention.training.engine import make_optimizer, make_schedule
from principal_attention.vision.models.load import build_classifier
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
    assert json.loads((tmp_path / "run" / "config.json").read_text())["label_names"] == ["dark", "light"]
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert {r["metric"]: r["value"] for r in records}["top1"] == 1.0
    for key in ("model", "suite", "case", "metric", "value", "n", "seed"):
        assert all(key in record for record in records)


def test_a_finished_run_is_where_another_begins(quick, folders, tmp_path):
    """Fine-tuning with a tiny rate hardly changes the weights; a new number of classes gets a new last layer."""
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


def test_saved_weights_lie_between_those_before_and_after(quick, folders, tmp_path):
    """The metrics are of the saved weights, and the training itself does not depend on the interpolation."""
    source = folders(per_class=24)
    quick(tmp_path / "start", f"data.source={source}", base=PLAIN)
    words = ["model=null", f"init_from={tmp_path / 'start'}", f"data.source={source}", "schedule.epochs=2",
             "training.batch_size=8", "schedule.warmup_epochs=0", "optimizer.lr=1e-2"]  # fmt: skip
    runs = {share: quick(tmp_path / str(share), f"interpolation={share}", base=words) for share in (1, 0.25)}
    start, end, between = (load_file(tmp_path / name / "model.safetensors") for name in ("start", "1", "0.25"))
    for name, weight in between.items():
        torch.testing.assert_close(weight, 0.75 * start[name] + 0.25 * end[name])
    assert not start["blocks.0.mlp.fc1.weight"].allclose(end["blocks.0.mlp.fc1.weight"])
    task = ImageTask(read_recipe(tmp_path / "0.25", ["init_from=" + str(tmp_path / "0.25"), "interpolation=1"]))
    task.model.eval()
    assert task.evaluate(task.model, Accelerator(cpu=True))["loss"] == pytest.approx(runs[0.25].metrics["loss"])
    with pytest.raises(InputError, match=r"has no weights for head .* the same classes"):
        ImageTask(read_recipe("digits/symvit", ["model=null", f"init_from={tmp_path / 'start'}", "interpolation=0.5",
                                                "data.source=digits"]))  # fmt: skip
    with pytest.raises(InputError, match="weights of init_from; set it"):
        read_recipe("digits/symvit", ["interpolation=0.5"])


def test_the_share_of_blocks_that_is_trained(quick, folders, tmp_path):
    source = folders(per_class=24)
    quick(tmp_path / "start", f"data.source={source}", base=PLAIN)
    quick(tmp_path / "end", base=["model=null", f"init_from={tmp_path / 'start'}", f"data.source={source}",
                                  "schedule.epochs=1", "schedule.warmup_epochs=0", "training.batch_size=8",
                                  "trained_share=0.4"])  # fmt: skip
    start, end = (load_file(tmp_path / name / "model.safetensors") for name in ("start", "end"))
    same = {name for name in start if start[name].equal(end[name])}
    assert {name for name in start if name.startswith(("blocks.1.", "norm.", "head."))} == same  # 0.4 of 2 blocks is 1


def test_frozen_batch_norms_keep_their_statistics(quick, folders, tmp_path):
    words = ["model.name=resnet10t", "model.options={in_chans: 3}", f"data.source={folders(size=32)}",
             "data.image_size=32", "schedule.epochs=1", "schedule.warmup_epochs=0", "training.batch_size=8",
             "training.log_every=1"]  # fmt: skip
    quick(tmp_path / "start", base=words)
    words[:2] = ["model=null", f"init_from={tmp_path / 'start'}", "trained_share=0.6", "teacher=self", "features={}",
                 "adversarial.eps=0.1"]  # fmt: skip
    quick(tmp_path / "end", base=words)
    start, end = (load_file(tmp_path / name / "model.safetensors") for name in ("start", "end"))
    same = {name for name in start if start[name].equal(end[name])}
    later = {name for name in start if name.startswith(("layer3.", "layer4.", "fc."))}
    assert later  # conv1, bn1, layer1 and layer2 are 4 of 6 blocks
    assert later == same


def test_robustify_in_a_recipe_and_in_what_it_leaves(quick, tmp_path):
    rpc = ("robustify.preset=admm", "robustify.iterations=3", "robustify.layers=all")
    quick(tmp_path / "run", *rpc, recipe="digits/symvit", base=QUICK)
    task = ImageTask(read_recipe("digits/symvit", ["model=null", f"init_from={tmp_path / 'run'}"]))
    pursuits = [block.attn.rpc_pursuit for block in task.model.blocks]
    assert pursuits == [pa.Pursuit(3, 1.0, "admm")] * 2


SMALL = dict(img_size=8, patch_size=2, in_chans=1, embed_dim=24, depth=2, num_heads=3)


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "rpc_asymvit_tiny_patch16_224"])
@pytest.mark.parametrize("classes", [10, 7])
def test_pretrained_weights_of_timm(tmp_path, name, classes):
    """All weights are loaded; the last layer is new only if the number of classes differs."""
    theirs = timm.create_model(name, num_classes=classes, **SMALL).eval()
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True)
    pretrained = ["model=null", f"init_from=timm:{name}@{tmp_path}"]
    with pytest.raises(InputError, match="cannot be made: Error"):
        ImageTask(read_recipe("digits/symvit", pretrained))  # weights of another size
    made = build_classifier(options=SMALL, init_from=f"timm:{name}@{tmp_path}", num_classes=lambda: 10)
    found, given = made.model.state_dict(), theirs.state_dict()
    same = [key for key in given if found[key].shape == given[key].shape and found[key].equal(given[key])]
    assert set(given) - set(same) == (set() if classes == 10 else {"head.weight", "head.bias"})


def test_weights_of_another_model_are_refused_also_where_the_classes_differ(tmp_path):
    wrong = timm.create_model("resnet18", num_classes=7)
    timm.models.save_for_hf(wrong, tmp_path, safe_serialization=True)
    start = dict(options=SMALL, init_from=f"timm:deit_tiny_patch16_224@{tmp_path}")
    with pytest.raises(InputError, match="cannot be made"):
        build_classifier(num_classes=lambda: 10, **start)


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("resnet18", {"in_chans": 1}, 32), ("test_vit", {"in_chans": 4}, None), ("test_vit", {}, 64),
        ("symvit_tiny_patch16_224", {"depth": 1, "patch_size": 4}, 16), ("test_convnext", {}, 64),
    ],
)  # fmt: skip
def test_any_model_of_timm_can_be_trained_and_is_found_again_in_its_run(tmp_path, name, options, size):
    made = build_classifier(name=name, options=options, num_classes=lambda: 3, image_size=size)
    view, channels = made.view, options.get("in_chans", 3)
    assert (view.channels, len(view.mean)) == (channels, channels)
    assert size is None or view.size == size
    made.save(tmp_path)
    again = build_classifier(init_from=str(tmp_path), num_classes=lambda: 3)
    assert again.view == view
    images = torch.rand(2, channels, view.size, view.size)
    assert again.model.eval()(images).equal(made.model.eval()(images))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "test_vit", "image_size": 37}, "takes no images of 37×37|cannot be made"),
        ({"name": "symvit_tiny_patch16_224", "options": {"num_classes": "abc"}}, "num_classes is 'abc'"),
        ({"name": "symvit_tiny_patch16_224", "options": {"num_classes": -3}}, "num_classes is -3"),
        ({"name": "symvit_tiny_patch16_224", "options": {"qk_norm": True}}, "has no option qk_norm"),
        ({"name": "test_vit", "mean": [0.5]}, r"data\.mean and data\.std have 1 and 3 values; the model takes 3"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_training(options, sentence):
    with pytest.raises(InputError, match=sentence):
        build_classifier(num_classes=lambda: 3, **options)


@pytest.mark.parametrize(
    "card", ["{", "null", '{"architecture": 5}', '{"architecture": "resnet18", "pretrained_cfg": 5}']
)
def test_a_damaged_card_is_named(tmp_path, card):
    model = timm.create_model("test_vit", num_classes=3)
    timm.models.save_for_hf(model, tmp_path, safe_serialization=True)
    (tmp_path / "config.json").write_text(card)
    with pytest.raises(InputError) as wrong:
        build_classifier(init_from=str(tmp_path), num_classes=lambda: 3)
    assert str(tmp_path) in str(wrong.value)


def test_an_image_classifier_of_transformers(quick, tmp_path):
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
    few = [*overrides, "data.limit=128", "schedule.epochs=2", "schedule.warmup_epochs=1"]
    quick(tmp_path / "whole", base=few)
    quick(tmp_path / "parts", base=few, stop_after=2)
    quick(tmp_path / "parts", base=few, resume=True)
    files = [tmp_path / name / "model.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    again = ImageTask(read_recipe("digits/symvit", ["model=null", f"init_from={tmp_path / 'whole'}"]))
    assert again.model.network.config.rpc["layers"].keys() == {"0", "1"}
    assert again.model.network.config.id2label[3] == "3"


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


def test_averaged_weights_are_the_runs_model(quick, tmp_path):
    quick(tmp_path, "training.ema=0.9")
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    model, raw, averaged = (
        load_file(path)
        for path in (tmp_path / "model.safetensors", newest / "model.safetensors", newest / "ema.safetensors")
    )
    assert all(model[name].equal(averaged[name]) for name in model)
    assert not model["head.weight"].equal(raw["head.weight"])


def test_a_clipped_gradient_moves_the_weights_no_further_than_told(quick, tmp_path):
    """With SGD and learning rate 1 the weights change by the gradient."""
    words = (
        "optimizer.name=momentum", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.lr=1",
        "schedule.warmup_epochs=0", "schedule.epochs=1", "training.batch_size=256", "training.ema=null",
    )  # fmt: skip
    moved = {}
    for clip in (0.1, 1e9):
        recipe = read_recipe("digits/rpc_symvit", [*QUICK, *words])
        before = ImageTask(recipe).model.state_dict()
        quick(tmp_path / str(clip), *words, f"optimizer.clip={clip}")
        after = load_file(tmp_path / str(clip) / "model.safetensors")
        moved[clip] = torch.stack([(after[name] - before[name]).norm() for name in after]).norm().item()
    (line,) = [line for line in read_jsonl(tmp_path / "1000000000.0" / "metrics.jsonl") if "loss" in line]
    assert moved[0.1] == pytest.approx(0.1, rel=1e-3)  # torch divides by norm + 1e-6; weights are rounded to float32
    assert moved[1e9] == pytest.approx(line["grad_norm"], rel=1e-3)
    assert moved[1e9] > 0.2


def test_mixup_of_a_part_is_a_part_of_the_mixup():
    """One process with the whole batch and two with halves apply the same mixup."""
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
    with pytest.raises(
        InputError, match=r"the label of image \d+ of split train is 2; expected a class number from 0 to 1"
    ):
        quick(tmp_path / "run", f"data.source={source}", f"training.workers={workers}",
              "model.options.num_classes=2", base=PLAIN)  # fmt: skip


def test_a_full_disk_is_one_sentence_and_the_checkpoint_before_is_intact(tmp_path):
    """A file size limit of 100 kB raises the same error as a full disk."""
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
