"""Recovery of attention keys (digits) from gross errors, for each preset of the pursuit.

    .venv/bin/python benchmarks/recovery.py --seeds 5

Prints the table of docs/results/key-recovery.md and writes docs/recovery.png as runs/recovery/recovery.png; seconds.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor

from principal_attention import PRESETS, Pursuit, principal_component_pursuit, rpc_attention
from principal_attention.plumbing.files import replacing, write_jsonl
from principal_attention.plumbing.records import record

KEYS = 256  # images per draw; each image is one key of 64 pixels
SPREAD = (
    0.5  # standard deviation of the pixels: kᵀk/√64 is then about 2, a softmax that is neither flat nor the identity
)
MAGNITUDE = 20.0  # size of a gross error, in units of the keys' mean absolute value (ours)
LAMBDAS = (4.0, 0.5)  # the paper's, and one whose threshold 4·lam·mean|K| is within the range of the keys' entries
ITERATIONS = 4


@dataclass(frozen=True)
class Recovery:
    keys: Tensor  # recovered keys
    flagged: Tensor | None  # entries that the method flags as errors
    output: Callable[[Tensor], Tensor] | None  # attention of the method as a function of the keys


def run(out: Path, *, seeds: int, share: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    images = torch.from_numpy(load_digits().data).float()
    images = images * (SPREAD / images.std())
    average = images.mean(0)
    rows: dict[str, list[dict[str, float]]] = {}
    shown: dict[str, Tensor] = {}
    for seed in track(range(seeds), description="contaminating, recovering", console=Console(stderr=True)):
        clean, dirty, hit = contaminate(images - average, share, seed)
        for name, recovery in methods(dirty):
            rows.setdefault(name, []).append(measure(recovery, clean, dirty, hit))
            if seed == 0:
                shown[name] = recovery.keys
        if seed == 0:
            shown = {"clean": clean, **shown}
    write_jsonl(out / "records.jsonl", [
        record(name, "recovery", "gross errors", metric, value, n=KEYS, seed=seed)
        for name, found in rows.items() for seed, metrics in enumerate(found) for metric, value in metrics.items()
    ])  # fmt: skip
    _picture(out / "recovery.png", shown, average)
    _print(rows, seeds, share)
    print(f"\n{out / 'records.jsonl'} holds these numbers, {out / 'recovery.png'} the recovered keys.")


def contaminate(images: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Clean keys, the keys with gross errors of random sign, and the mask of the errors."""
    random = torch.Generator().manual_seed(seed)
    clean = images[torch.randperm(len(images), generator=random)[:KEYS]]
    hit = torch.rand(clean.shape, generator=random) < share
    sign = torch.randint(0, 2, clean.shape, generator=random) * 2 - 1
    return clean, clean + hit * sign * MAGNITUDE * clean.abs().mean(), hit


def methods(dirty: Tensor) -> Iterator[tuple[str, Recovery]]:
    plain = Pursuit(1, math.inf)
    yield "plain attention", Recovery(dirty, None, lambda k: rpc_attention(k, k, pursuit=plain))
    for lam in LAMBDAS:
        for preset in PRESETS:
            pursuit = Pursuit(ITERATIONS, lam, preset)
            _, trace = rpc_attention(dirty, dirty, pursuit=pursuit, model_dim=dirty.shape[-1], return_trace=True)
            yield (
                f"{preset}, λ = {lam:g}",
                Recovery(
                    dirty - trace.sparse,
                    trace.sparse != 0,
                    lambda k, p=pursuit: rpc_attention(k, k, pursuit=p, model_dim=k.shape[-1]),  # type: ignore[misc]
                ),
            )
    result = principal_component_pursuit(dirty)
    yield "PCP", Recovery(result.low_rank, result.sparse.abs() > 1e-3, None)


def measure(recovery: Recovery, clean: Tensor, dirty: Tensor, hit: Tensor) -> dict[str, float]:
    found = {"key_error": _relative(recovery.keys, clean)}
    if recovery.flagged is not None:
        found["errors_found"] = recovery.flagged[hit].float().mean().item() if hit.any() else math.nan
        found["false_alarms"] = recovery.flagged[~hit].float().mean().item() if not hit.all() else math.nan
    if recovery.output is not None:
        found["output_shift"] = _relative(recovery.output(dirty), recovery.output(clean))
    return found


def _relative(x: Tensor, y: Tensor) -> float:
    return ((x - y).norm() / y.norm()).item()


def _print(rows: dict[str, list[dict[str, float]]], seeds: int, share: float) -> None:
    table = Table(
        title=f"{KEYS} digits as keys, {share:.0%} of the entries contaminated by ±{MAGNITUDE:g}·mean|K|; "
        f"mean ± deviation over {seeds} draws",
        expand=False,
        caption="keys: relative distance of the recovered keys from the clean keys. found, false alarms: share of the "
        "contaminated and of the clean entries flagged as errors. output: relative change of the method's attention.",
    )
    heads = {"key_error": "keys", "errors_found": "found", "false_alarms": "false alarms", "output_shift": "output"}
    table.add_column("method")
    for head in heads.values():
        table.add_column(head, justify="right")
    for name, found in rows.items():
        cells = []
        for metric in heads:
            values = np.array([f[metric] for f in found if metric in f])
            cells.append(f"{values.mean():.2f} ± {values.std():.2f}" if len(values) else "–")
        table.add_row(name, *cells)
    Console().print(table)


def _picture(path: Path, shown: dict[str, Tensor], average: Tensor) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    clean = shown["clean"]
    high = (clean + average).max().item()
    columns = 12
    figure, axes = plt.subplots(len(shown), columns, figsize=(11, 0.82 * len(shown)), squeeze=False)
    for row, (name, keys) in zip(axes, shown.items(), strict=True):
        for axis, key in zip(row, keys[:columns], strict=True):
            axis.imshow((key + average).reshape(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=high)
            axis.set_xticks([])
            axis.set_yticks([])
        label = name if name == "clean" else f"{name}\n{_relative(keys, clean):.2f} from clean"
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle("Keys as each method recovers them", fontsize=10)
    figure.tight_layout()
    with replacing(path) as partial:
        figure.savefig(partial, dpi=110, format="png")
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/recovery"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--errors", type=float, default=0.05, help="share of key entries with a gross error (default: 0.05)"
    )
    given = parser.parse_args()
    run(given.out, seeds=given.seeds, share=given.errors)
