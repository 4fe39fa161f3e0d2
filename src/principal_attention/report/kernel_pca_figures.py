"""Figures of an analysis, made from its records."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .figures import plt

COLOURS = {"none": "#c44e52", "random": "#4c72b0", "shuffled": "#55a868", "untrained": "#8c8c8c"}
NAMES = {"none": "values of the model", "random": "random values", "shuffled": "shuffled values",
         "untrained": "untrained network"}  # fmt: skip
Records = Sequence[dict[str, Any]]


def spectrum(records: Records) -> Any:
    """Leading eigenvalues of the centred Gram matrix, one line per layer."""
    figure, axis = plt.subplots(figsize=(7, 3.4))
    curves = _curves(records, "eigenvalue")
    layers = sorted({layer for null, layer in curves if null == "none"})
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(layers)))
    for colour, layer in zip(colours, layers, strict=True):
        values = curves["none", layer]
        axis.loglog(range(1, len(values) + 1), values, color=colour, label=f"layer {layer}")
    axis.set_xlabel("eigenvalue")
    axis.set_ylabel("size, mean over heads and examples")
    axis.legend(frameon=False, fontsize=7, ncols=2)
    return _plain(figure)


def gamma(records: Records) -> Any:
    """The paper's Figure 2: mean and standard deviation of |γᵢ − γⱼ| for each component, over heads and layers."""
    figure, axis = plt.subplots(figsize=(7, 3.4))
    mean, deviation = _curves(records, "gamma_mean"), _curves(records, "gamma_std")
    for null in _nulls(mean):
        middle, around = (_over_layers(each, null) for each in (mean, deviation))
        axis.plot(middle, color=COLOURS[null], label=NAMES[null])
        axis.fill_between(range(len(middle)), middle, middle + around, color=COLOURS[null], alpha=0.12)
    axis.set_yscale("log")
    axis.set_xlabel("component")
    axis.set_ylabel("|γᵢ − γⱼ|")
    axis.legend(frameon=False, fontsize=8)
    return _plain(figure)


def gamma_by_layer(records: Records) -> Any:
    """Mean of |γᵢ − γⱼ| in each layer, as in the paper's appendix."""
    curves = _curves(records, "gamma_mean")
    layers = sorted({layer for _, layer in curves})
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.6 * columns, 1.7 * rows), sharex=True, squeeze=False)
    for axis, layer in zip(axes.flat, layers, strict=False):
        for null in _nulls(curves):
            if (null, layer) in curves:
                axis.semilogy(curves[null, layer], color=COLOURS[null], linewidth=1, label=NAMES[null])
        axis.set_title(f"layer {layer}", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(layers) :]:
        axis.set_visible(False)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, ncols=len(names), loc="lower center",
                  bbox_to_anchor=(0.5, -0.06))  # fmt: skip
    figure.tight_layout()
    return figure


def by_layer(records: Records, metrics: Sequence[tuple[str, str]]) -> Any:
    """One panel per metric (name, title): a dot per head and a line of layer means, for the model and each null."""
    figure, axes = plt.subplots(1, len(metrics), figsize=(4.2 * len(metrics), 3.2), squeeze=False)
    for axis, (metric, title) in zip(axes[0], metrics, strict=True):
        for null, colour in COLOURS.items():
            points = [(r["layer"], r["value"]) for r in _heads(records, metric) if r["null"] == null]
            if not points:
                continue
            layers = sorted({layer for layer, _ in points})
            axis.plot(*zip(*points, strict=True), ".", color=colour, alpha=0.5, markersize=5)
            means = [np.mean([value for layer, value in points if layer == each]) for each in layers]
            axis.plot(layers, means, color=colour, label=NAMES[null])
        axis.set_xlabel("layer")
        axis.set_title(title, fontsize=10)
        axis.set_ylim(0, 1.02)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return _plain(figure)


def overlap_by_rank(records: Records) -> Any:
    """Overlap of the first r eigenvectors with the span of the values' coefficients, as a function of r."""
    figure, axis = plt.subplots(figsize=(7, 3.2))
    ranks = sorted({int(r["metric"].rpartition("_")[2]) for r in records if r["metric"].startswith("overlap_")})
    for null, colour in COLOURS.items():
        means = []
        for rank in ranks:
            found = [r["value"] for r in _heads(records, f"overlap_{rank}") if r["null"] == null]
            means.append(np.mean(found) if found else np.nan)
        if not np.isnan(means).all():
            axis.plot(ranks, means, "o-", color=colour, label=NAMES[null], markersize=4)
    axis.set_xscale("log", base=2)
    axis.set_xticks(ranks, [str(rank) for rank in ranks])
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("rank r")
    axis.set_ylabel("mean squared cosine")
    axis.legend(frameon=False, fontsize=8)
    return _plain(figure)


def heat_map(records: Records, metric: str, title: str) -> Any:
    """Heat maps (layer × head) of a metric, and of its differences from the null models."""
    found = {(r["null"], r["layer"], r["head"]): r["value"] for r in _heads(records, metric)}
    layers, heads = (1 + max(key[i] for key in found) for i in (1, 2))
    grids = {null: np.full((layers, heads), np.nan) for null in COLOURS}
    for (null, *place), value in found.items():
        grids[null][tuple(place)] = value
    values = np.fmax(grids["random"], grids["shuffled"])
    shown = (
        (grids["none"], title, "viridis", 0),
        (grids["none"] - values, "minus random or shuffled values", "coolwarm", -1),
        (grids["none"] - grids["untrained"], "minus the untrained network", "coolwarm", -1),
    )
    figure, axes = plt.subplots(1, 3, figsize=(9, 0.9 + 0.28 * layers))
    for axis, (grid, name, colours, low) in zip(axes, shown, strict=True):
        picture = axis.imshow(grid, cmap=colours, vmin=low, vmax=1, aspect="auto")
        axis.set_xticks(range(heads))
        axis.set_yticks(range(layers))
        axis.tick_params(labelsize=7)
        axis.set_xlabel("head")
        axis.set_ylabel("layer")
        axis.set_title(name, fontsize=9)
        figure.colorbar(picture, ax=axis)
    figure.tight_layout()
    return figure


def _heads(records: Records, metric: str) -> list[dict[str, Any]]:
    return [r for r in records if r["metric"] == metric and "head" in r]


def _curves(records: Records, metric: str) -> dict[tuple[str, int], np.ndarray]:
    """Values over components by null and layer; for a causal model, those of the longest prefix."""
    longest = max((r.get("prefix", 0) for r in records), default=0)
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for r in records:
        if r["metric"] == metric and "component" in r and r.get("prefix", 0) == longest:
            found.setdefault((r["null"], r["layer"]), []).append((r["component"], r["value"]))
    return {key: np.array([value for _, value in sorted(points)]) for key, points in found.items()}


def _nulls(curves: dict[tuple[str, int], np.ndarray]) -> list[str]:
    return [null for null in COLOURS if any(null == each for each, _ in curves)]


def _over_layers(curves: dict[tuple[str, int], np.ndarray], null: str) -> np.ndarray:
    found = [values for (each, _), values in curves.items() if each == null]
    shortest = min(map(len, found))  # heads of different layers may differ in width
    return np.mean([values[:shortest] for values in found], axis=0)


def _plain(figure: Any) -> Any:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure
