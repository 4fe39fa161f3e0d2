"""Figures as pictures inside a page."""

import base64
import io
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["COLOURS", "accuracies", "answers", "curves", "embedded", "plt", "save"]

COLOURS = ("#4c72b0", "#c44e52")


def save(figure: Any, where: Any) -> None:
    figure.savefig(where, format="png", dpi=130, bbox_inches="tight", metadata={"Software": None})


def embedded(figure: Any) -> str:
    """The figure as the address of an <img>."""
    buffer = io.BytesIO()
    save(figure, buffer)
    plt.close(figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def accuracies(rows: list[dict[str, Any]], models: list[str]) -> str:
    """A dot a seed and a bar at the mean, case by case."""
    figure, axis = plt.subplots(figsize=(7, 3))
    for offset, (name, colour) in enumerate(zip(models, COLOURS, strict=False)):
        for place, row in enumerate(rows):
            values, x = row["values"][name], place + 0.3 * (offset - 0.5)
            axis.bar(x, sum(values) / len(values), width=0.27, color=colour, alpha=0.35, label=None if place else name)
            axis.plot([x] * len(values), values, "o", color=colour, markersize=4)
    axis.set_xticks(range(len(rows)), [row["title"] for row in rows])
    axis.set_ylabel("top-1")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, loc="upper right")
    axis.spines[["top", "right"]].set_visible(False)
    return embedded(figure)


def curves(found: dict[tuple[str, int], list[dict[str, Any]]], models: list[str]) -> str:
    """Validation accuracy over training, a line a seed."""
    figure, axis = plt.subplots(figsize=(7, 2.6))
    for (name, seed), lines in found.items():
        points = [(line["epoch"], line["validation_top1"]) for line in lines if "validation_top1" in line]
        colour = COLOURS[models.index(name) % len(COLOURS)]
        axis.plot(*zip(*points, strict=True), color=colour, alpha=0.8, label=name if seed == 0 else None)
    axis.set_xlabel("epoch")
    axis.set_ylabel("top-1, held-out")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return embedded(figure)


def answers(samples: dict[str, Any], titles: dict[str, str]) -> str:
    """What a model was shown and what it said; wrong answers are red."""
    count = len(samples["labels"])
    figure, axes = plt.subplots(len(titles), count, figsize=(0.75 * count, 0.95 * len(titles)), squeeze=False)
    for row, (case, title) in zip(axes, titles.items(), strict=True):
        for axis, image, said, label in zip(
            row, samples["images"][case], samples["predicted"][case], samples["labels"], strict=True
        ):
            axis.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_xlabel(str(said), color="black" if said == label else "#c0392b", fontsize=9, labelpad=2)
        row[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8)
    figure.subplots_adjust(wspace=0.1, hspace=0.35)
    return embedded(figure)
