"""Speed of whole models relative to baselines: the paper's models, and DeiT-tiny with `robustify`.

    .venv/bin/python benchmarks/models.py                        print the tables
    .venv/bin/python benchmarks/models.py --write --rounds 15    also write them to docs/benchmarks-models.md

Timed as in core.py: each round runs every model of a column once; each column runs in a separate process. A training
step is forward, backward and AdamW on 16 images of 224×224.
"""

import json
import subprocess
import sys
from collections.abc import Callable

import principal_attention as pa  # isort: skip (first: helps torchvision, and with it timm, past a broken build)
import timm
import torch
import torch.nn.functional as F

import principal_attention.vision.models
from core import arguments, cell, compare, markdown, write

BATCH = 16
PURSUIT = dict(iterations=6, lam=4.0)


def model(name: str, robust: str | None = None, **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    made = timm.create_model(name, **options)
    return made if robust is None else pa.robustify(made, pursuit=pa.Pursuit(**PURSUIT, preset=robust))


# The first model of each table is the baseline.
KINDS: dict[str, dict[str, Callable[[], torch.nn.Module]]] = {
    "symvit": {
        "SymViT-tiny": lambda: model("symvit_tiny_patch16_224"),
        "timm's DeiT-tiny": lambda: model("deit_tiny_patch16_224"),
    }
    | {
        f"RPC-SymViT-tiny, n = 6, layer 1, {preset}": lambda preset=preset: model(
            "rpc_symvit_tiny_patch16_224", pursuit=PURSUIT | {"preset": preset}
        )
        for preset in pa.PRESETS
    },
    "robustify": {"original": lambda: model("deit_tiny_patch16_224")}
    | {preset: lambda preset=preset: model("deit_tiny_patch16_224", preset) for preset in pa.PRESETS},
}


def timed(kind: str, training: bool) -> dict[str, Callable[[], object]]:
    random = torch.Generator().manual_seed(0)
    images, labels = torch.randn(BATCH, 3, 224, 224, generator=random), torch.randint(1000, (BATCH,), generator=random)

    def function(network: torch.nn.Module) -> Callable[[], object]:
        if not training:
            return lambda: network(images)
        optimizer = torch.optim.AdamW(network.parameters())

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimizer.step()

        return step

    return {name: function(make().train(training)) for name, make in KINDS[kind].items()}


def measure(kind: str, rounds: int) -> dict[bool, dict[str, list[float]]]:
    """Ratios of inference and of a training step, each measured in a separate process."""
    found = {}
    for training in (False, True):
        command = [sys.executable, __file__, "--one", json.dumps([kind, training, rounds])]
        found[training] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    options = arguments(__doc__, rounds=15)
    if options.one:
        kind, training, rounds = json.loads(options.one)
        with torch.set_grad_enabled(training):
            print(json.dumps(compare(timed(kind, training), rounds)))
        return
    lines: list[str] = []
    for kind, title, aims in (
        ("symvit", f"Time relative to SymViT-tiny, {BATCH} images", {"timm's DeiT-tiny": "≥ 1"}),
        (
            "robustify",
            f'DeiT-tiny with `robustify(layers="first")`, n = 6: time relative to the original model, {BATCH} images',
            {},
        ),
    ):
        found = measure(kind, options.rounds)
        names = list(KINDS[kind])[1:]
        rows = [[name, *(cell(found[training][name]) for training in (False, True)), aims.get(name, "≤ 1.15")]
                for name in names]  # fmt: skip
        lines += markdown(title, ["", "inference", "training step", "target"], rows)
    if options.write:
        command = f"models.py --write --rounds {options.rounds}"
        write("benchmarks-models.md", "# Benchmarks of whole models", command, lines)


if __name__ == "__main__":
    main()
