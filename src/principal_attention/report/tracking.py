"""Plot the distance of a model's heads from kernel PCA during training, from the log of the run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..plumbing.files import read_jsonl, replacing
from ..plumbing.layout import METRICS
from .figures import COLOURS, plt, save

PANELS = {
    "j_proj": "J_proj as printed",
    "log_j_proj_authors": "log J_proj as in the paper's code",
    "overlap": "overlap with the leading axes",
    "rayleigh_residual": "Rayleigh residual",
}


def read_track(folder: Path) -> list[dict[str, Any]]:
    """Lines of a run's log written by `track: kernel_pca`: one before training, one per epoch."""
    return [line for line in read_jsonl(folder / METRICS) if "kernel_pca_overlap" in line]


def write_plot(folder: Path) -> Path:
    """Write `kernel_pca.png` to the folder of a run, and return its path."""
    path = folder / "kernel_pca.png"
    figure = draw({folder.name: [read_track(folder)]})
    with replacing(path) as partial:
        save(figure, partial)
    plt.close(figure)
    return path


def draw(runs: Mapping[str, Sequence[list[dict[str, Any]]]]) -> Any:
    """Figure of four metrics over epochs: one colour per name, one line per run."""
    figure, axes = plt.subplots(2, 2, figsize=(8, 5), sharex=True)
    for axis, (metric, title) in zip(axes.flat, PANELS.items(), strict=True):
        for (name, found), colour in zip(runs.items(), COLOURS, strict=False):
            for number, lines in enumerate(found):
                epochs = [line["epoch"] for line in lines]
                values = [line.get(f"kernel_pca_{metric}", math.nan) for line in lines]
                axis.plot(epochs, values, "o-", color=colour, markersize=3, label=None if number else name)
                if metric == "overlap":
                    null = [line["kernel_pca_overlap_random"] for line in lines]
                    axis.plot(epochs, null, ":", color=colour, label=None if number else f"{name}, random values")
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1, 0].legend(frameon=False, fontsize=7)
    for axis in axes[1]:
        axis.set_xlabel("epoch")
    figure.tight_layout()
    return figure
