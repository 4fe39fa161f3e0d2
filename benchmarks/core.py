"""Speed and memory of the attention functions relative to baselines; `models.py` measures whole models.

    make bench                                         print the tables
    .venv/bin/python benchmarks/core.py --write        also write them to docs/benchmarks.md

Times: each round runs every candidate once; a ratio is the median over rounds of the candidate's time divided by
the baseline's time in the same round, with quartiles. Each comparison runs in a separate process.
Memory: increase of the process's peak memory during one forward and backward pass, in a separate process whose
allocator returns freed tensors to the system at once, so that the peak is the memory in use.
"""

import argparse
import datetime
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

import principal_attention as pa
from principal_attention import Pursuit

SHAPES = [(16, 3, 197, 64), (4, 3, 1025, 64)]
ITERATIONS = 4
sdpa = F.scaled_dot_product_attention


def explicit(k: torch.Tensor, v: torch.Tensor, lam: float = 4.0) -> torch.Tensor:
    """Preset "paper", written with explicit N×N matrices."""
    tau = 4 * lam * k.abs().mean((-2, -1), keepdim=True)
    low_rank = dual = torch.zeros_like(k)
    for _ in range(ITERATIONS):
        error = k - low_rank + dual
        sparse = error.sign() * (error.abs() - tau).clamp(min=0)
        keys = k - sparse - dual
        low_rank = torch.softmax(keys @ keys.mT / math.sqrt(k.shape[-1]), -1) @ v
        dual = dual + k - low_rank - sparse
    return low_rank


def backward(function: Callable[..., torch.Tensor], k: torch.Tensor, v: torch.Tensor) -> None:
    k, v = (t.detach().requires_grad_() for t in (k, v))
    function(k, v).sum().backward()


def candidates(kind: str, shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    """Functions to compare; the first is the baseline."""
    random = torch.Generator().manual_seed(0)
    k, v = (torch.randn(shape, generator=random) for _ in range(2))

    def rpc(preset: str, **options):
        pursuit = Pursuit(ITERATIONS, preset=preset)
        return partial(pa.rpc_attention, pursuit=pursuit, model_dim=shape[1] * shape[3], **options)

    def four() -> None:
        for _ in range(ITERATIONS):
            sdpa(k, k, v)

    def four_backward() -> None:
        for _ in range(ITERATIONS):
            backward(lambda k, v: sdpa(k, k, v), k, v)

    if kind == "forward":
        return {"four fused passes": four} | {p: partial(rpc(p), k, v) for p in pa.PRESETS}
    if kind == "explicit":
        return {"fast path, paper": partial(rpc("paper"), k, v), "explicit N×N": partial(explicit, k, v)}
    trained = {p: rpc(p) for p in pa.PRESETS} | {"paper, recompute": rpc("paper", recompute=True)}
    return {"four fused passes": four_backward} | {name: partial(backward, f, k, v) for name, f in trained.items()}


def kernel_pca() -> dict[str, Callable[[], object]]:
    import numpy as np
    from sklearn.decomposition import KernelPCA

    keys = torch.randn(16 * 36, 197, 64, generator=torch.Generator().manual_seed(0))

    def loop() -> None:
        for x in keys.double().numpy():
            kernel = np.exp(x @ x.T / 8)
            g = kernel.sum(1)
            KernelPCA(64, kernel="precomputed").fit(kernel / np.outer(g, g))

    return {"KernelPCA, batched": lambda: pa.KernelPCA(64).fit(keys), "scikit-learn, looped": loop}


def compare(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    for function in functions.values():
        function()
    ratios: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        times = {}
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = time.perf_counter() - start
        base = next(iter(times.values()))
        for name, seconds in times.items():
            ratios[name].append(seconds / base)
    return ratios


def peak(n: int, tokens: int, recompute: bool) -> float:
    """Increase of the peak memory in one forward and backward pass, in MiB."""
    k, v = (torch.randn(4, 4, tokens, 64, requires_grad=True) for _ in range(2))
    run = partial(pa.rpc_attention, pursuit=Pursuit(n), recompute=recompute)
    backward(run, k[:1, :1, :64], v[:1, :1, :64])  # excludes the memory of lazy imports
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    run(k, v).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before


def child(*arguments: object) -> object:
    """Run one measurement of this file in a separate process."""
    command = [sys.executable, __file__, "--one", json.dumps(arguments)]
    environment = os.environ | ({"MALLOC_MMAP_THRESHOLD_": "65536"} if arguments[0] == "peak" else {})
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def one(arguments: list) -> object:
    kind, *rest = arguments
    if kind == "peak":
        return peak(*rest)
    if kind == "kernel_pca":
        return compare(kernel_pca(), 3)
    with torch.set_grad_enabled(kind == "backward"):
        return compare(candidates(kind, tuple(rest[0])), rest[1])


def cell(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def markdown(title: str, heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"## {title}", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    print("\n".join(lines), flush=True)
    return lines


def write(name: str, title: str, command: str, lines: list[str]) -> None:
    """Write tables to docs/, with the command and the machine that made them."""
    head = [
        title,
        "",
        f"Made by `python benchmarks/{command}` on {datetime.date.today()}: "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, no GPU. "
        "Ratios: median (quartiles) over all rounds; inputs are Gaussian with seed 0.",
        "",
    ]
    path = Path(__file__).parents[1] / "docs" / name
    path.write_text("\n".join([*head, *lines]).rstrip() + "\n", encoding="utf-8")


def tables(rounds: int) -> list[str]:
    lines = []

    def table(title: str, heads: list[str], rows: list[list[str]]) -> None:
        lines.extend(markdown(title, heads, rows))

    for kind, title, bound in (
        ("forward", f"Forward, n = {ITERATIONS}: time relative to four fused passes", "1.15"),
        ("backward", f"Forward and backward, n = {ITERATIONS}: time relative to four fused passes", "1.3"),
    ):
        found = {shape: child(kind, shape, rounds) for shape in SHAPES}
        names = list(found[SHAPES[0]])[1:]
        rows = [
            [name, *(cell(found[shape][name]) for shape in SHAPES), "–" if "recompute" in name else f"≤ {bound}"]
            for name in names
        ]
        table(title, ["preset", *map(str, SHAPES), "target"], rows)

    found = {shape: child("explicit", shape, rounds) for shape in SHAPES}
    rows = [["explicit N×N", *(cell(found[shape]["explicit N×N"]) for shape in SHAPES), "≥ 2.5"]]
    table("Forward with explicit N×N matrices: time relative to the fast path", ["", *map(str, SHAPES), "target"], rows)

    sizes = {key: [child("peak", *key)] for key in
             ((4, 1024, False), (4, 4096, False), (2, 2048, False), (6, 2048, False), (2, 2048, True),
              (6, 2048, True))}  # fmt: skip
    mid = {key: statistics.median(values) for key, values in sizes.items()}
    rows = []
    for name, small, large, aim in (
        ("N from 1024 to 4096, n = 4", (4, 1024, False), (4, 4096, False), "≤ 4.5"),
        ("n from 2 to 6, N = 2048", (2, 2048, False), (6, 2048, False), "≤ 2.2"),
        ("the same, recompute=True", (2, 2048, True), (6, 2048, True), "≤ 1.3"),
    ):
        rows.append([name, f"{mid[small]:.0f}", f"{mid[large]:.0f}", f"{mid[large] / mid[small]:.2f}", aim])
    table(
        "Peak memory of forward and backward in MiB, shape (4, 4, N, 64)", ["", "from", "to", "ratio", "target"], rows
    )

    ratios = child("kernel_pca")["scikit-learn, looped"]
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    rows = [["36 heads × 16 images, N = 197, D = 64, 64 components", spread, "≥ 1.8"]]
    table(
        "A loop over scikit-learn's KernelPCA: time relative to the batched `pa.KernelPCA`",
        ["", "ratio (range of 3)", "target"],
        rows,
    )
    return lines


REMARKS = """## Remarks

- At N = 197 a pass takes 5 ms, and the additional time is memory traffic. The forward ratio is a few percent above or
  below its target, depending on the run.
- At N = 197 the time of the explicit version depends on the number of page faults for its 7 MiB matrices, which differs
  between processes: 2.5 to 2.95 times the fast path's time with 16,000 to 18,000 page faults per call, 1.65 times with
  2,700. Runs of this benchmark gave 1.4 to 2.7. The target of 2.5 is met at N = 1025, but not reliably at N = 197.
- `recompute=True` takes more time, and its memory hardly grows with n: less than the default at n = 6, more at n =
  2."""


def arguments(description: str | None, rounds: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds of each comparison (default {rounds})")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments(__doc__, rounds=25)
    if options.one:
        print(json.dumps(one(json.loads(options.one))))
        return
    lines = tables(options.rounds)
    if options.write:
        write("benchmarks.md", "# Benchmarks", f"core.py --write --rounds {options.rounds}", [*lines, REMARKS])


if __name__ == "__main__":
    main()
