"""Results of an analysis for the terminal, for Markdown and as a page, made from records only."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..analysis.measure import NULLS
from ..analysis.verdicts import Verdict, heads_that_clear
from ..evaluation.suite import Rows
from ..plumbing.files import replacing
from ..plumbing.layout import FIGURES, PAGE
from . import kernel_pca_figures as draw
from . import pages
from .figures import embedded, save

Records = Sequence[dict[str, Any]]

# metrics in the order shown: format, and the value that a head with Theorem 1's values would have
SHOWN = {
    "lambda_max": (".1e", ""),
    "effective_rank": (".0f", ""),
    "infeasible_share": (".2f", "0"),
    "rayleigh_residual": (".2f", "0"),
    "subspace_residual": (".2f", "0"),
    "overlap": (".2f", "1"),
    "angle_smallest": (".0f", "0"),
    "angle_median": (".0f", "0"),
    "explained_share": (".2f", "1"),
    "matched_cosine": (".2f", "1"),
    "linear_cka": (".2f", "1"),
    "kernel_cka": (".2f", "1"),
    "phi_norm": (".1e", ""),
    "h_norm": (".2g", ""),
    "j_proj": (".2g", "J*"),
    "j_star": (".1e", ""),
    "residual_best": (".1e", "J*"),
    "violation_share": (".2f", "0"),
    "gamma_median": (".1e", "0"),
    "gamma_relative": (".2f", "0"),
}
MARKS = {"holds": "✓", "in part": "~", "fails": "✗", "not asked": "–"}


RANGE = 3  # column of `metric_rows` that is left out on a terminal, to save width


def metric_rows(records: Records) -> Rows:
    """One row per metric: median and range over heads, medians of the nulls, and number of heads that clear them."""
    rows = [["metric", "PCA", "median", "range", *NULLS, "clear"]]
    for metric, (form, exact) in SHOWN.items():
        values = {null: _values(records, metric, null) for null in ("none", *NULLS)}
        own = values["none"]
        if not own:
            continue
        nulls = [format(statistics.median(values[null]), form) if values[null] else "–" for null in NULLS]
        clear = heads_that_clear(records, metric)
        share = "–" if clear is None else f"{sum(clear)}/{len(clear)}"
        spread = f"{min(own):{form}} … {max(own):{form}}"
        rows.append([metric, exact, format(statistics.median(own), form), spread, *nulls, share])
    return rows


def layer_rows(records: Records, metric: str) -> Rows:
    """One row per layer: mean over heads for the model and each null model."""
    rows = [["layer", "model", *NULLS]]
    for layer in sorted({r["layer"] for r in records}):
        cells = []
        for null in ("none", *NULLS):
            found = [r["value"] for r in records if (r["metric"], r["null"], r["layer"]) == (metric, null, layer)
                     and "head" in r]  # fmt: skip
            cells.append(f"{statistics.fmean(found):.3f}" if found else "–")
        rows.append([str(layer), *cells])
    return rows


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    return [f"{MARKS[each.answer]} {each.claim}: {each.answer}. {each.sentence}" for each in verdicts]


def make_figures(records: Records) -> dict[str, tuple[Any, str]]:
    """Figures with their captions, by name."""
    both = (("overlap", "overlap with the leading axes"), ("rayleigh_residual", "Rayleigh residual"))
    return {
        "overlap": (draw.by_layer(records, both), "Each dot is a head. Kernel PCA has overlap 1 and residual 0."),
        "heads": (draw.heat_map(records, "overlap", "overlap"), "Overlap with the leading axes of each head."),
        "rank": (draw.overlap_by_rank(records), "Mean squared cosine with the first r axes, averaged over heads."),
        "spectrum": (draw.spectrum(records), "Leading eigenvalues of the centred Gram matrix, not divided by N."),
        "gamma": (
            draw.gamma(records),
            "The paper's Figure 2 with null models: mean (line) and one standard deviation above it (band).",
        ),
        "gamma-layers": (draw.gamma_by_layer(records), "Mean of the previous figure in each layer."),
    }


def write_report(folder: Path, records: Records, verdicts: Sequence[Verdict], *, unit: str) -> Path:
    """Write the figures as PNG files and the page; returns the path of the page."""
    shown = []
    for name, (figure, caption) in make_figures(records).items():
        with replacing(folder / FIGURES / f"{name}.png") as partial:
            save(figure, partial)
        shown.append((embedded(figure), caption))
    first = records[0]
    return pages.write_page(
        folder / PAGE, "kernel_pca.html", records=records, model=first["model"], data=first["data"], seed=first["seed"],
        unit=unit, count=max(r["n"] for r in records), verdicts=verdicts, figures=shown, metrics=metric_rows(records),
    )  # fmt: skip


def _values(records: Records, metric: str, null: str) -> list[float]:
    return [r["value"] for r in records if r["metric"] == metric and r["null"] == null and "head" in r]
