"""`principal demo`: SymViT and RPC-SymViT on handwritten digits over several seeds, attacked, compared, on a page."""

import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..errors import InputError
from ..evaluation.compare import paired, percent
from ..plumbing.files import read_jsonl, write_jsonl, write_text
from ..plumbing.layout import RECIPE, RECORDS
from ..plumbing.processes import cores
from ..plumbing.progress import make_progress
from ..plumbing.records import record
from ..recipes import ImageRecipe, read_recipe
from ..report.demo import write_page
from ..training import train
from ..training.batches import Plan
from ..training.images import ImageTask
from ..vision.attacks import attack
from ..vision.data import open_splits, stack
from ..vision.pixels import OnPixels, gaussian_noise

MODELS = {"SymViT": "digits/symvit", "RPC-SymViT": "digits/rpc_symvit"}
BASELINE, OURS = MODELS
SIGMA, EPS, STEPS = 0.25, 0.1, 20  # of the grey range; ours, so that the baseline neither holds nor collapses
CASES = {  # case: suite, how the page and the table call it
    "validation": ("clean", "clean"),
    "gaussian_noise": ("corruptions", f"noise σ {SIGMA}"),
    "fgsm": ("attacks", f"FGSM ε {EPS}"),
    "pgd": ("attacks", f"PGD ε {EPS}"),
}
SHOWN = 10  # images on the page


def run_demo(out: Path, *, seeds: int) -> None:
    started = time.monotonic()
    jobs = [(name, seed, out / f"{name.lower()}-{seed}") for seed in range(seeds) for name in MODELS]
    out.mkdir(parents=True, exist_ok=True)
    _run_all(jobs)
    records = [each for _, _, folder in jobs for each in read_jsonl(folder / RECORDS)]
    write_jsonl(out / RECORDS, records)
    rows = summarise(records)
    _print_table(rows, seeds)
    page = write_page(
        out, rows, models=list(MODELS), seeds=seeds, verdict=verdict(rows),
        curves={(name, seed): read_jsonl(folder / "metrics.jsonl") for name, seed, folder in jobs},
        samples={name: json.loads((folder / "samples.json").read_text()) for name, seed, folder in jobs if seed == 0},
    )  # fmt: skip
    Console().print(f"{(time.monotonic() - started) / 60:.1f} minutes; look at {page}", highlight=False, soft_wrap=True)


def _run_all(jobs: list[tuple[str, int, Path]]) -> None:
    """Train and attack, one process a core; the bar counts everybody's steps."""
    processes = min(cores(), len(jobs))
    total = sum(_steps(_recipe(name, seed)) for name, seed, _ in jobs)
    context = multiprocessing.get_context("spawn")
    with (
        make_progress() as bar,
        ProcessPoolExecutor(processes, context, _limit, (max(1, cores() // processes),)) as pool,
    ):
        task = bar.add_task("training and attacking", total=total, note="")
        futures: list[Future[None]] = [pool.submit(_job, *job) for job in jobs]
        try:
            while not all(future.done() for future in futures):
                done = sum(_reached(folder) for _, _, folder in jobs)
                finished = sum(future.done() for future in futures)
                bar.update(task, completed=done, note=f"{finished} of {len(jobs)} models done")
                if any(future.done() and future.exception() for future in futures):
                    break
                time.sleep(0.3)
            for future in futures:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _limit(threads: int) -> None:
    """What each process does first: keep to its cores, and not outlive the one that started it."""
    torch.set_num_threads(threads)
    threading.Thread(target=_follow_the_parent, daemon=True).start()


def _follow_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _recipe(name: str, seed: int) -> ImageRecipe:
    recipe = read_recipe(MODELS[name], [f"seed={seed}", f"name={name}"])
    assert isinstance(recipe, ImageRecipe)
    return recipe


def _steps(recipe: ImageRecipe) -> int:
    examples = open_splits(recipe.data.source)[0].length
    assert examples is not None
    return Plan(examples, recipe.training.batch_size).epoch_steps * recipe.schedule.epochs


def _reached(folder: Path) -> int:
    lines = read_jsonl(folder / "metrics.jsonl")
    return max((line["step"] for line in lines), default=0)


def _job(name: str, seed: int, folder: Path) -> None:
    """One model of one seed: train it unless that was done, then corrupt and attack what it is tested on."""
    recipe = _recipe(name, seed)
    if (folder / "samples.json").exists():
        if read_recipe(folder) != recipe:
            raise InputError(f"{folder} holds another version's run: remove it, or choose another --out")
        return
    silent = Progress(console=Console(file=StringIO()))
    train(recipe, folder, resume=(folder / RECIPE).exists(), progress=silent, tensorboard=False)
    task = ImageTask(recipe.model_copy(update={"model": None, "init_from": str(folder)}))
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
               protocol="pixel", **budget.get(case, {}))
        for case, (suite, _) in CASES.items()
    ])  # fmt: skip
    samples = {
        "labels": labels[:SHOWN].tolist(),
        "images": {case: changed[:SHOWN, 0].tolist() for case, changed in altered.items()},
        "predicted": {case: found[:SHOWN].tolist() for case, found in predicted.items()},
    }
    write_text(folder / "samples.json", json.dumps(samples))


def summarise(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a case: each model's accuracies over the seeds, and their paired difference."""
    rows = []
    for case, (_, title) in CASES.items():
        values = {
            name: [
                r["value"] for r in sorted(records, key=lambda r: r["seed"]) if (r["model"], r["case"]) == (name, case)
            ]
            for name in MODELS
        }
        if not values[BASELINE]:
            raise InputError(f"there are no records of {case}; remove the folder and run the demo again")
        rows.append(
            {"case": case, "title": title, "values": values, "difference": paired(values[OURS], values[BASELINE])}
        )
    return rows


def _print_table(rows: list[dict[str, Any]], seeds: int) -> None:
    title = f"Top-1 in % on 360 held-out digits, mean ± standard deviation over {seeds} seeds"
    table = Table(
        title=title if seeds > 1 else "Top-1 in % on 360 held-out digits", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for number, head in enumerate(("", *MODELS, "difference (95%)", "")):
        table.add_column(head, justify="right" if number in (1, 2, 3) else "left", no_wrap=True)
    for row in rows:
        found = row["difference"]
        interval = f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})" if seeds > 1 else ""
        values = (percent(values) for values in row["values"].values())
        table.add_row(row["title"], *values, f"{100 * found.mean:+.1f}{interval}", found.verdict())
    console = Console()
    console.print(table)
    console.print(verdict(rows), highlight=False)


def verdict(rows: list[dict[str, Any]]) -> str:
    """What may be said of the differences, in one sentence."""
    if rows[0]["difference"].pairs < 2:
        return "One seed has no deviation, so nothing can be said about any difference."
    beyond = [row["title"] for row in rows if row["difference"].beyond_noise]
    if beyond:
        return f"{OURS} differs from {BASELINE} by more than noise only here: {'; '.join(beyond)}."
    return f"No difference between {OURS} and {BASELINE} is beyond noise."
