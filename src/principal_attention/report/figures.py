"""Figures, and their embedding in a page."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["COLOURS", "accuracies", "answers", "before_and_after", "curves", "embedded", "plt", "save"]

COLOURS = ("#4c72b0", "#c44e52", "#55a868")


def save(figure: Any, where: Any) -> None:
    figure.savefig(where, format="png", dpi=130, bbox_inches="tight", metadata={"Software": None})


def embedded(figure: Any) -> str:
    """Data URL of a figure, for the src of an <img>; closes the figure."""
    buffer = io.BytesIO()
    save(figure, buffer)
    plt.close(figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def accuracies(rows: list[dict[str, Any]], models: list[str]) -> str:
    """Accuracy of each model in each case: one dot per seed, a bar for the mean."""
    figure, axis = plt.subplots(figsize=(7, 3))
    titles = list(dict.fromkeys(row["title"] for row in rows))
    width = 0.8 / len(models)
    for row in rows:
        number = models.index(row["model"])
        values, x = row["values"], titles.index(row["title"]) + width * (number - (len(models) - 1) / 2)
        label = row["model"] if row["title"] == titles[0] else None
        axis.bar(x, sum(values) / len(values), width=0.9 * width, color=COLOURS[number], alpha=0.35, label=label)
        axis.plot([x] * len(values), values, "o", color=COLOURS[number], markersize=4)
    axis.set_xticks(range(len(titles)), titles)
    axis.set_ylabel("top-1")
    axis.set_ylim(0, 1)
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=len(models))
    axis.spines[["top", "right"]].set_visible(False)
    return embedded(figure)


def curves(found: dict[tuple[str, int], list[dict[str, Any]]], models: list[str]) -> str:
    """Validation accuracy during training, one line per seed."""
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
    """Images shown to a model with its predictions; wrong predictions are red."""
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


def before_and_after(found: Sequence[tuple[str, float, float]]) -> str:
    """Two horizontal bars per case."""
    figure, axis = plt.subplots(figsize=(7, 0.6 + 0.5 * len(found)))
    places = range(len(found))
    for offset, (name, colour) in enumerate(zip(("before", "after"), COLOURS[::2], strict=True)):
        values = [100 * each[1 + offset] for each in found]
        bars = axis.barh([place - 0.2 + 0.4 * offset for place in places], values, 0.36, color=colour, label=name)
        axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    axis.set_yticks(places, [each[0] for each in found], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("%")
    axis.set_xlim(0, 100)
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    return embedded(figure)
