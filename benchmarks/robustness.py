"""Robustness of DeiT-tiny with and without RPC-Attention, and of the CIFAR-10 models, with `principal evaluate`.

    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/robustness.py deit --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/robustness.py cifar10 --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/robustness.py drop-in --write

The folder holds `imagenet-val-2000`, `deit-tiny`, `frost` and `cifar10`; the CIFAR-10 models are those of
`benchmarks/vision.py cifar10`, in runs/cifar10. Each part runs `principal evaluate` with one process per core
and writes one page, which lists the commands. A measurement resumes after an interruption. `deit` and `cifar10` take
hours on two cores, `drop-in` three quarters of an hour.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from pages import measured
from principal_attention.evaluation.compare import paired, percent
from principal_attention.evaluation.outcomes import Outcomes, Result
from principal_attention.evaluation.run import compare
from principal_attention.plumbing.files import read_jsonl, write_text
from principal_attention.report.evaluation import check_lines, tables
from principal_attention.report.tables import for_markdown
from principal_attention.tasks.classes import right
from principal_attention.tasks.image_classes import KIND

DOCS, OUT = Path(__file__).parents[1] / "docs" / "results", Path("runs/robustness")
SEEDS = range(3)
SWEEP = "0.25/255,0.5/255,1/255,2/255,4/255,8/255"
DEIT = (
    "--suite clean,corruptions --severities 1,3,5 --frost-dir FROST",
    "--suite attacks --attacks fgsm,pgd,sld,noise --eps 1/255 --limit 200",
    "--suite attacks --attacks cw,apgd-ce,apgd-t,fab-t --eps 1/255 --targets 3 --limit 50",
    "--suite attacks --attacks square --eps 1/255 --steps 1000 --limit 50",
    "--suite attacks --attacks spsa --eps 1/255 --steps 40 --samples 64 --limit 10",
    f"--suite attacks --attacks fgsm,pgd --eps {SWEEP} --limit 200",
    "--suite attacks --attacks fgsm,pgd --protocol authors --limit 200",
)
CIFAR10 = (
    "--suite clean,corruptions --severities 1,3,5 --frost-dir FROST --limit 2000 --batch-size 100",
    "--suite attacks --attacks fgsm,pgd,noise --eps 1/255,2/255,4/255 --limit 1000 --batch-size 100",
    "--suite attacks --attacks apgd-ce,apgd-t --eps 2/255 --targets 3 --limit 500 --batch-size 100",
    "--suite attacks --attacks square --eps 2/255 --steps 1000 --limit 500 --batch-size 100",
)
ADAPTIVE = (
    "--suite attacks --attacks pgd --eps 2/255 --gradients own,straight,infinite,transfer --limit 1000 --batch-size 100"
)
DROP_IN = "--suite clean,corruptions --severities 3 --frost-dir FROST --limit 500"
SETTINGS = {  # settings of the preset `cleaned`: folder -> column
    "cleaned-4-0.5-first": "n = 4, λ = 0.5, first layer",
    "cleaned-4-1-first": "n = 4, λ = 1, first layer",
    "cleaned-6-1-all": "n = 6, λ = 1, all layers",
    "cleaned-4-2-all": "n = 4, λ = 2, all layers",
}
SUITES = KIND.suites
NAMES = {"symvit": "SymViT", "rpc-symvit": "RPC-SymViT"}


def evaluate(model: str, data: Path, source: str, options: str, out: Path, *more: str) -> None:
    words = [
        model,
        "--data",
        str(data / source),
        *options.replace("FROST", str(data / "frost")).split(),
        "--out",
        str(out),
        *more,
    ]
    print("principal evaluate", shlex.join(words), flush=True)
    many = os.cpu_count() or 1
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(many)] if many > 1 else ["-W", "ignore"]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, *launch, "-m", "principal_attention", "evaluate", *words], check=True, env=alone)


def head(title: str, kind: str, *folders: str) -> list[str]:
    when = measured(OUT / folder / "records.jsonl" for folder in folders)
    return [
        f"# {title}", "", f"`PRINCIPAL_DATA=… python benchmarks/robustness.py {kind} --write`, "
        f"{when}, torch {torch.__version__.split('+')[0]}, {os.cpu_count()} cores.",
    ]  # fmt: skip


def measure_deit(data: Path) -> None:
    for options in DEIT:
        model = f"timm:deit_tiny_patch16_224@{data / 'deit-tiny'}"
        evaluate(model, data, "imagenet-val-2000", options, OUT / "deit-tiny")


def tell_deit() -> list[str]:
    records = read_jsonl(OUT / "deit-tiny" / "records.jsonl")
    accuracies, corruptions = tables(records)
    commands = [f"    principal evaluate MODEL --data imagenet-val-2000 {options}" for options in DEIT]
    return [
        *head("DeiT-tiny: corruptions and attacks", "deit", "deit-tiny"), "",
        "timm's `deit_tiny_patch16_224` on 2,000 ImageNet validation images (two per class); attacks on stratified",
        "subsets, smaller for slower attacks. Accuracies in % with Wilson's 95% interval; minutes on one core.", "",
        "## Clean images and attacks", "", for_markdown(accuracies.rows), "",
        "[evaluation.md](../evaluation.md) defines the protocols. An ε of `authors` is in normalised units, about 4.4",
        "times smaller than the same ε of `pixel`.", "",
        "Checks for masked gradients:", "",
        *(f"- {line}" for line in check_lines(records)), "",
        "## Corruptions", "", "Top-1 in %; corruptions computed here, with ImageNet-C's photographs of frost.", "",
        for_markdown(corruptions.rows), "", "## Commands", "", *commands, "",
    ]  # fmt: skip


def measure_cifar10(data: Path) -> None:
    for seed in SEEDS:
        for name in NAMES:
            run = Path("runs/cifar10") / f"{name}-{seed}"
            for options in CIFAR10:
                evaluate(str(run), data, "cifar10", f"--split test {options}", OUT / run.name)
            if name == "rpc-symvit":
                evaluate(str(run), data, "cifar10", f"--split test {ADAPTIVE}", OUT / run.name, "--source",
                         f"runs/cifar10/symvit-{seed}")  # fmt: skip


def _pair(found: dict) -> str:
    p = f"p = {found['p']:.3f}" if found["p"] >= 0.0005 else "p < 0.001"
    return f"{100 * found['value']:+.1f} ({100 * found['low']:+.1f} to {100 * found['high']:+.1f}), {p}"


def _told(record: dict) -> dict:
    """Keys of a comparison that identify its case."""
    of_one = ("model", "against", "value", "low", "high", "p", "only_ours", "only_theirs")
    return {key: x for key, x in record.items() if key not in of_one}


def _accuracy(results: list[Result], told: dict) -> float:
    """Accuracy in the case of a comparison."""
    (found,) = [r for r in results if all(told.get(key) == x for key, x in r.description.items())]
    return float(right(found).mean())


def tell_cifar10() -> list[str]:
    results = {(name, seed): Outcomes(OUT / f"{name}-{seed}").results() for name in NAMES for seed in SEEDS}
    rows = [["case", "setting", "images", *NAMES.values(), "difference (Student's 95%, over seeds)"]]
    alone = [["case", "setting", *(f"seed {seed}" for seed in SEEDS)]]
    by_seed = [
        compare("RPC-SymViT", SUITES, results["rpc-symvit", seed], "SymViT", results["symvit", seed]) for seed in SEEDS
    ]
    means = []
    for pairs in zip(*by_seed, strict=True):
        told = pairs[0]
        assert all(_told(pair) == _told(told) for pair in pairs)
        values = {name: [_accuracy(results[name, seed], told) for seed in SEEDS] for name in NAMES}
        apart = paired(values["rpc-symvit"], values["symvit"])
        if "severity" in told:
            means.append(apart.mean)
        how = SUITES[told["suite"]].setting(told)
        rows.append([
            told["case"], how, str(told["n"]), *(percent(values[name]) for name in NAMES),
            f"{100 * apart.mean:+.1f} ({100 * apart.low:+.1f} to {100 * apart.high:+.1f}), {apart.verdict()}",
        ])  # fmt: skip
        alone.append([told["case"], how, *(_pair(pair) for pair in pairs)])
    adaptive = [["gradients of PGD, ε = 2/255", "RPC-SymViT"]]
    for kind in ("own", "straight", "infinite", "transfer", "worst"):
        found = [
            r["value"]
            for seed in SEEDS
            for r in read_jsonl(OUT / f"rpc-symvit-{seed}" / "records.jsonl")
            if (r["case"], r["metric"], r.get("gradients"), r["n"]) == ("pgd", "top1", kind, 1000)
            and abs(r["eps"] - 2 / 255) < 1e-9
        ]
        adaptive.append([kind, percent(found)])
    checks = {
        line for name in NAMES for seed in SEEDS
        for line in check_lines(read_jsonl(OUT / f"{name}-{seed}" / "records.jsonl")) if line.startswith("!")
    }  # fmt: skip
    return [
        *head("CIFAR-10: SymViT against RPC-SymViT under corruptions and attacks", "cifar10",
              *(f"{name}-{seed}" for name in NAMES for seed in SEEDS)), "",
        "The models of [cifar10.md](cifar10.md), three seeds each, on stratified subsets of the test images. Top-1 in",
        "%, mean ± standard deviation over seeds; differences are paired by seed.", "", for_markdown(rows), "",
        f"Mean difference over all corruptions: {100 * statistics.fmean(means):+.2f} points.", "",
        "## Adaptive attacks on RPC-SymViT", "", for_markdown(adaptive), "",
        "`transfer` attacks the SymViT of the same seed; `worst` counts an image as correct only if it survives all",
        "four attacks.", "",
        "Failed checks for masked gradients: " + ("; ".join(sorted(checks)) or "none") + ".", "",
        "## Image by image", "",
        "RPC-SymViT minus SymViT of the same seed, on the same images: difference in points with its 95% interval",
        "(bootstrap over images), and McNemar's exact p. A small p means that the two networks differ, which holds for",
        "any two training runs; the first table compares the methods.", "", for_markdown(alone), "",
    ]  # fmt: skip


def measure_drop_in(data: Path) -> None:
    model = f"timm:deit_tiny_patch16_224@{data / 'deit-tiny'}"
    for setting in ("plain", *SETTINGS):
        more = []
        if setting != "plain":
            preset, n, lam, layers = setting.split("-")
            more = ["--robustify", f"preset={preset},iterations={n},lam={lam},layers={layers}"]
        evaluate(model, data, "imagenet-val-2000", DROP_IN, OUT / "drop-in" / setting, *more)


def tell_drop_in() -> list[str]:
    """Top-1 of the original model, and the paired difference of each setting, for all corruptions."""
    folders = {setting: OUT / "drop-in" / setting for setting in ("plain", *SETTINGS)}
    results = {setting: Outcomes(folder).results() for setting, folder in folders.items()}
    pairs = {
        setting: {each["case"]: each for each in compare(setting, SUITES, results[setting], "plain", results["plain"])}
        for setting in SETTINGS
    }
    plain = {each.description["case"]: float(right(each).mean()) for each in results["plain"]}
    rows = [["images", "original", *SETTINGS.values()]]
    for case, accuracy in plain.items():
        told = [pairs[setting][case] for setting in SETTINGS]
        rows.append([case, f"{100 * accuracy:.1f}", *(_points(each) for each in told)])
    kinds = [case for case in plain if case != "clean"]
    means = [statistics.fmean(100 * pairs[setting][case]["value"] for case in kinds) for setting in SETTINGS]
    average = 100 * statistics.fmean(plain[case] for case in kinds)
    rows.append(["mean of the 15", f"{average:.1f}", *(f"{mean:+.1f}" for mean in means)])
    return [
        *head("RPC-Attention in DeiT-tiny without training: fifteen corruptions", "drop-in",
              *(f"drop-in/{setting}" for setting in folders)), "",
        "timm's `deit_tiny_patch16_224` on a stratified subset of 500 images of `imagenet-val-2000`, clean and",
        "with every corruption of ImageNet-C at severity 3 (seed 0, the same images for every column). Top-1 of",
        "the original model in %, then the paired difference in points with the preset `cleaned` (form `query`,",
        "weights unchanged) and its 95% interval (bootstrap over images). A star marks McNemar's exact p < 0.05;",
        "about one star per column of sixteen is expected by chance.",
        "", for_markdown(rows), "", "## Commands", "",
        f"    principal evaluate MODEL --data imagenet-val-2000 {DROP_IN} --out plain",
        f"    principal evaluate MODEL --data imagenet-val-2000 {DROP_IN} \\",
        "        --robustify preset=cleaned,iterations=4,lam=1,layers=first --out cleaned --against plain", "",
    ]  # fmt: skip


def _points(found: dict) -> str:
    star = "*" if found["p"] < 0.05 else ""
    return f"{100 * found['value']:+.1f}{star} ({100 * found['low']:+.1f} to {100 * found['high']:+.1f})"


PARTS = {
    "drop-in": (measure_drop_in, tell_drop_in, "drop-in-corruptions.md"),
    "deit": (measure_deit, tell_deit, "deit-tiny-robustness.md"),
    "cifar10": (measure_cifar10, tell_cifar10, "cifar10-robustness.md"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=PARTS)
    parser.add_argument("--write", action="store_true", help="write the page to docs/results")
    arguments = parser.parse_args()
    if "PRINCIPAL_DATA" not in os.environ:
        sys.exit("PRINCIPAL_DATA is not set; expected the folder described at the top of this file")
    measure, tell, name = PARTS[arguments.kind]
    measure(Path(os.environ["PRINCIPAL_DATA"]))
    text = "\n".join(tell())
    print(text)
    if arguments.write:
        write_text(DOCS / name, text)


if __name__ == "__main__":
    main()
