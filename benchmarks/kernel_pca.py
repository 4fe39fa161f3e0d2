"""How far is trained attention from kernel PCA? DeiT-tiny, MiniLM, and the CIFAR-10 models during training.

    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/kernel_pca.py models --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/kernel_pca.py training --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/kernel_pca.py speed --write

The folder holds `imagenet-val-2000`, `deit-tiny`, `minilm-l6`, `sst2` and `cifar10`. Each part writes one section of
docs/results/kernel-pca.md and resumes after an interruption.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from pages import keep, measured
from principal_attention.analysis.verdicts import judge
from principal_attention.evaluation.compare import paired
from principal_attention.plumbing.files import read_jsonl, replacing
from principal_attention.report.kernel_pca import layer_rows, metric_rows
from principal_attention.report.tables import for_markdown
from principal_attention.report.tracking import draw, read_track
from principal_attention.tasks import kind_of

DOCS, OUT = Path(__file__).parents[1] / "docs" / "results", Path("runs/kernel-pca")
SEEDS = range(3)
RECIPES = {"SymViT": "cifar10/symvit", "RPC-SymViT": "cifar10/rpc_symvit"}
MODELS = {
    "DeiT-tiny": ("deit-tiny", "timm:deit_tiny_patch16_224@{data}/deit-tiny", "imagenet-val-2000", "--images 2000"),
    "MiniLM, pieces of 128 tokens": ("minilm", "hf:{data}/minilm-l6", "sst2", "--texts 150 --pack 128"),
    "MiniLM, sentences": ("minilm-sentences", "hf:{data}/minilm-l6", "sst2", "--texts 150"),
}
DRAWN = {"deit-tiny": ("overlap", "heads", "rank", "gamma", "gamma-layers", "spectrum"), "minilm": ("overlap",)}
Lines = list[str]


def principal(*words: str) -> None:
    print("principal", *words, flush=True)
    subprocess.run([sys.executable, "-W", "ignore", "-m", "principal_attention", *words], check=True)


def stamp(kind: str, *folders: Path) -> str:
    return (
        f"`PRINCIPAL_DATA=… python benchmarks/kernel_pca.py {kind} --write`, "
        f"{measured(folder / 'records.jsonl' for folder in folders)}, "
        f"torch {torch.__version__.split('+')[0]}, {os.cpu_count()} cores."
    )


def models(data: Path) -> Lines:
    lines: Lines = []
    for title, (folder, model, source, options) in MODELS.items():
        out = OUT / folder
        principal("analyze", model.format(data=data), "--data", str(data / source), *options.split(), "--out", str(out))
        records = read_jsonl(out / "records.jsonl")
        count = max(r["n"] for r in records)
        lines += [
            f"### {title}", "",
            f"{count} examples of `{records[0]['data']}`: `principal analyze MODEL --data {source} {options}`.", "",
            *(f"- **{v.claim}**: {v.answer}: {v.sentence}" for v in judge(records)), "",
            "Medians over heads; *clear* counts the heads whose 95% bootstrap interval clears every null.", "",
            for_markdown(metric_rows(records)), "", "Overlap by layer, means over heads:", "",
            for_markdown(layer_rows(records, "overlap")), "",
        ]  # fmt: skip
        for name in DRAWN.get(folder, ()):
            picture = f"kernel-pca-{folder}-{name}.png"
            with replacing(DOCS / picture) as partial:
                shutil.copy(out / "figures" / f"{name}.png", partial)
            lines += [f"![{name} of {title}]({picture})", ""]
    folders = (OUT / folder for folder, *_ in MODELS.values())
    return ["## Trained models", "", stamp("models", *folders), "", *lines]


def training(data: Path) -> Lines:
    runs: dict[str, list[list[dict[str, Any]]]] = {}
    folders = []
    for name, recipe in RECIPES.items():
        for seed in SEEDS:
            folder = OUT / f"{recipe.partition('/')[2]}-{seed}"
            if not (folder / "model.safetensors").exists():
                principal(
                    "train", recipe, f"data.source={data / 'cifar10'}", f"seed={seed}", "track=kernel_pca", "--out",
                    str(folder), "--resume",
                )  # fmt: skip
            runs.setdefault(name, []).append(read_track(folder))
            folders.append(folder)
    picture = DOCS / "kernel-pca-training.png"
    from principal_attention.report.figures import save

    with replacing(picture) as partial:
        save(draw(runs), partial)
    metrics = ("j_proj", "log_j_proj_authors", "overlap", "overlap_random", "rayleigh_residual")
    rows = [["model", "measure", "untrained", "trained", "change (Student's 95%)", ""]]
    for name, found in runs.items():
        for metric in metrics:
            ends = [[lines[place].get(f"kernel_pca_{metric}", float("nan")) for lines in found] for place in (0, -1)]
            change = paired(ends[1], ends[0])
            told = change.verdict().replace("better", "rises").replace("worse", "falls")
            rows.append([
                name, metric, *(f"{statistics.fmean(each):.3f} ± {statistics.stdev(each):.3f}" for each in ends),
                f"{change.mean:+.3f} ({change.low:+.3f} to {change.high:+.3f})", told,
            ])  # fmt: skip
    return [
        "## During training", "", stamp("training", *folders), "",
        "The CIFAR-10 recipes with `track=kernel_pca`, 3 seeds: 16 held-out images, all heads, before training and",
        "after each epoch. The paper's Figure 1 shows `log_j_proj_authors`, the quantity of the second panel, falling",
        "for ViT-tiny on ImageNet.", "",
        for_markdown(rows), "", f"![kernel PCA measures after each epoch]({picture.name})", "",
    ]  # fmt: skip


def speed(data: Path) -> Lines:
    import numpy as np
    from sklearn.decomposition import KernelPCA

    from principal_attention.adapt.named import ModelRef
    from principal_attention.analysis.capture import capture
    from principal_attention.kernel_pca import gram_spectrum
    from principal_attention.tasks.kind import DataChoice

    model = f"timm:deit_tiny_patch16_224@{data / 'deit-tiny'}"
    source = str(data / "imagenet-val-2000")
    shutil.rmtree(OUT / "speed", ignore_errors=True)
    start = time.monotonic()
    principal("analyze", model, "--data", source, "--images", "100", "--out", str(OUT / "speed"))
    minutes = (time.monotonic() - start) / 60
    ref, keys = ModelRef.of(model), []
    inputs = kind_of(ref).inputs(ref, DataChoice(source), count=4, device="cpu")
    with torch.no_grad(), capture(inputs.network, lambda heads: keys.append(heads.keys.double())):
        for batch in inputs.batches(4, [0]):
            inputs.show(inputs.network, batch)
    stacked = torch.stack(keys, 1).flatten(0, 2)  # (images·layers·heads, N, D)
    ours, theirs = [], []
    for _ in range(5):
        start = time.monotonic()
        for part in stacked.split(36):
            gram_spectrum(part, stacked.shape[-1] ** -0.5)
        ours.append(time.monotonic() - start)
        start = time.monotonic()
        for each in stacked.numpy():
            kernel = np.exp(each @ each.T / 8)
            g = kernel.sum(1)
            KernelPCA(64, kernel="precomputed", eigen_solver="dense").fit(kernel / np.outer(g, g))
        theirs.append(time.monotonic() - start)
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    return [
        "## Speed", "", stamp("speed", OUT / "speed"), "",
        f"`principal analyze` of 100 images with DeiT-tiny (36 heads), including loading and the report: {minutes:.1f}",
        "minutes. Eigenproblems of all heads for 4 images, speed relative to a loop over scikit-learn's KernelPCA:",
        f"{statistics.median(ratios):.1f}× ({min(ratios):.1f} to {max(ratios):.1f} over 5 rounds).", "",
    ]  # fmt: skip


PARTS = {"models": models, "training": training, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=PARTS)
    parser.add_argument("--write", action="store_true", help="write the section to docs/results/kernel-pca.md")
    arguments = parser.parse_args()
    if "PRINCIPAL_DATA" not in os.environ:
        sys.exit("PRINCIPAL_DATA is not set; expected the folder described at the top of this file")
    lines = PARTS[arguments.kind](Path(os.environ["PRINCIPAL_DATA"]))
    print("\n".join(lines))
    if arguments.write:
        keep(DOCS / "kernel-pca.md", lines, title="Is attention kernel PCA?")


if __name__ == "__main__":
    main()
