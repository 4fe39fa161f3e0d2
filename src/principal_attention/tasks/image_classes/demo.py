"""Jobs of the demo: train a small vision transformer on digits, then corrupt and attack held-out digits."""

import json
from datetime import date
from io import StringIO
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

from ...errors import InputError
from ...plumbing.files import read_jsonl, write_jsonl, write_text
from ...plumbing.layout import METRICS, RECIPE, RECORDS
from ...plumbing.records import MEASURED, record
from ...training.batches import BatchPlan
from ...vision.attacks import attack
from ...vision.data import open_splits, stack
from ...vision.pixels import OnPixels, gaussian_noise
from ..run import read_recipe, train
from .recipe import ImageRecipe
from .training import ImageTask

MODELS = {"SymViT": "digits/symvit", "RPC-SymViT": "digits/rpc_symvit", "hardened": "digits/hardened"}
BASELINE, RPC, HARDENED = MODELS
CHAINS = ((BASELINE, HARDENED), (RPC,))  # models that are trained one after the other, since the second needs the first
SIGMA, EPS, STEPS = (
    0.25,
    0.1,
    20,
)  # SIGMA and EPS: shares of the grey range; ours, chosen so that the baseline's accuracy falls, but not to zero
CASES = {  # case: suite, name on the page and in the table
    "validation": ("clean", "clean"),
    "gaussian_noise": ("corruptions", f"noise σ {SIGMA}"),
    "fgsm": ("attacks", f"FGSM ε {EPS}"),
    "pgd": ("attacks", f"PGD ε {EPS}"),
}
SHOWN = 10  # images on the page
SAMPLES = "samples.json"  # file in a model's folder, written last


def folder_name(name: str, seed: int) -> str:
    return f"{name.lower().replace(' ', '-')}-{seed}"


def demo_recipe(name: str, seed: int, out: Path) -> ImageRecipe:
    overrides = [f"seed={seed}", f"name={name}"]
    sections = {"init_from": str((out / folder_name(BASELINE, seed)).resolve())} if name == HARDENED else {}
    recipe = read_recipe(MODELS[name], overrides, sections)
    assert isinstance(recipe, ImageRecipe)
    return recipe


def demo_steps(recipe: ImageRecipe) -> int:
    examples = open_splits(recipe.data.source)[0].length
    assert examples is not None
    return BatchPlan(examples, recipe.training.batch_size).epoch_steps * recipe.schedule.epochs


def steps_done(folder: Path) -> int:
    lines = read_jsonl(folder / METRICS)
    return max((line["step"] for line in lines), default=0)


def run_job(name: str, seed: int, folder: Path) -> None:
    """Train one model with one seed, unless done before, then corrupt and attack its evaluation images."""
    recipe = demo_recipe(name, seed, folder.parent)
    if (folder / SAMPLES).exists():
        if read_recipe(folder) != recipe:
            raise InputError(f"{folder} holds a run of another version of the demo: remove it, or choose another --out")
        return
    silent = Progress(console=Console(file=StringIO()))
    train(recipe, folder, resume=(folder / RECIPE).exists(), progress=silent, tensorboard=False)
    plain = {"model": None, "init_from": str(folder), "teacher": None, "adversarial": None}
    task = ImageTask(recipe.model_copy(update=plain))
    view = task.classifier.view
    model = OnPixels(task.model, view.mean, view.std)
    held = stack([task.held[index, index] for index in range(len(task.held))])
    assert not isinstance(held, InputError)
    images, labels = held
    images = model.pixels(images)
    altered = {
        "validation": images,
        "gaussian_noise": gaussian_noise(images, SIGMA),
        "fgsm": attack("fgsm", model, images, labels, eps=EPS),
        "pgd": attack("pgd", model, images, labels, eps=EPS, steps=STEPS),
    }
    with torch.inference_mode():
        predicted = {case: model(changed).argmax(-1) for case, changed in altered.items()}
    budget = {"gaussian_noise": {"sigma": SIGMA}, "fgsm": {"eps": EPS}, "pgd": {"eps": EPS, "steps": STEPS}}
    write_jsonl(folder / RECORDS, [
        record(name, suite, case, "top1", (predicted[case] == labels).double().mean().item(), n=len(labels), seed=seed,
               protocol="pixel", **{MEASURED: date.today().isoformat()}, **budget.get(case, {}))
        for case, (suite, _) in CASES.items()
    ])  # fmt: skip
    samples = {
        "labels": labels[:SHOWN].tolist(),
        "images": {case: changed[:SHOWN, 0].tolist() for case, changed in altered.items()},
        "predicted": {case: found[:SHOWN].tolist() for case, found in predicted.items()},
    }
    write_text(folder / SAMPLES, json.dumps(samples))
