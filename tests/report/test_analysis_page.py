"""Page and tables of an analysis, made from records only."""

import pytest

from principal_attention.analysis.verdicts import judge
from principal_attention.plumbing.records import record
from principal_attention.report.kernel_pca import SHOWN, layer_rows, metric_rows, write_report

WIDTHS = {0: 4, 1: 3}  # of the heads in each layer


def records(*, heads=2, model="<script>alert(1)</script>", widths=WIDTHS):
    found = []
    for layer, width in widths.items():
        for null in ("none", "random", "shuffled", "untrained"):
            common = dict(n=20, seed=0, layer=layer, null=null, data="made")
            for head in range(heads):
                for metric in (*SHOWN, "overlap_1", "overlap_2"):
                    value = 0.5 if null == "none" else 0.25 + 0.01 * head
                    gap = {} if null == "none" else {"difference_low": 0.1, "difference_high": 0.3, "difference": 0.2}
                    found.append(record(model, "kernel_pca", f"layer {layer} head {head}", metric, value, head=head,
                                        low=value, high=value, **common, **gap))  # fmt: skip
            for metric in ("eigenvalue", "gamma_mean", "gamma_std"):
                found += [
                    record(model, "kernel_pca", f"layer {layer}", metric, 1 / (1 + i), component=i, **common)
                    for i in range(width)
                ]
    return found


@pytest.mark.parametrize("options", [{}, {"heads": 1, "widths": {0: 4}}])
def test_a_page_is_made_of_any_model_and_escapes_its_name(options, tmp_path):
    found = records(**options)
    text = write_report(tmp_path, found, judge(found), unit="images").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "on 20 images of made" in text
    assert "they span the leading principal axes" in text


def test_tables_say_who_clears_every_null():
    found = records()
    rows = {row[0]: row for row in metric_rows(found)}
    assert rows["overlap"] == ["overlap", "1", "0.50", "0.50 … 0.50", "0.26", "0.26", "0.26", "4/4"]
    assert rows["rayleigh_residual"][-1] == "0/4"  # a difference of +0.2 is away from kernel PCA
    assert rows["lambda_max"][-1] == "–"
    assert layer_rows(found, "overlap")[1] == ["0", "0.500", "0.255", "0.255", "0.255"]
