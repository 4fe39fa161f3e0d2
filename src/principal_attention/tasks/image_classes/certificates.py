"""Certified answers of an image classifier: cases, records and table."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...evaluation.outcomes import Columns, Result
from ...evaluation.results import of_result
from ...evaluation.suite import Case, Record, Rows
from ...vision.certify import MaskedCertifier
from ..classes import interval, right, top1
from .examples import ImageBatch
from .subject import ImageSubject


def certificate_case(subject: ImageSubject, patch: int) -> Callable[[int], Case]:
    """Function from a number of images to the case of one patch size; raises if the model cannot be certified."""
    together = 16 if subject.on_pixels.mean.device.type == "cpu" else 128  # masked images; the result is the same
    certifier = MaskedCertifier(subject.on_pixels, patch, batch_size=together)

    def measure(_: ImageSubject, batch: ImageBatch) -> Columns:
        answers, certified = certifier.for_labels(batch.images, batch.labels)
        columns = {"label": batch.labels, "predicted": answers, "certified": certified.long()}
        return {name: column.tolist() for name, column in columns.items()}

    # half of all pairs: some images need all of them, others few
    return partial(
        Case, "certificate", f"{patch}x{patch}", measure=measure, pinned={"patch": patch, "masks": certifier.masks},
        cost=certifier.masks + certifier.pairs / 2,
    )  # fmt: skip


def certified(result: Result) -> Any:
    """Whether the answer to each image is correct and certified."""
    return (result.columns["certified"] == 1) & right(result)


def certificate_records(model: str, result: Result) -> list[Record]:
    """Records of certified accuracy and of the defended model's accuracy, with their intervals."""
    held = certified(result)
    low, high = interval(int(held.sum()), len(held))
    return [of_result(model, result, "certified", float(held.mean()), low=low, high=high), top1(model, result)]


def certificate_rows(records: Sequence[Record]) -> Rows:
    """Table with one row per patch size and set of images. Empty without records."""
    found: dict[tuple[Any, ...], dict[str, Record]] = {}
    for each in records:
        found.setdefault((each["patch"], each["n"], each.get("data"), each.get("data_id")), {})[each["metric"]] = each
    rows = [["patch", "masks", "examples", "certified %", "95%", "defended top-1 %", "95%", "minutes"]]
    for (patch, n, *_), pair in sorted(found.items(), key=lambda item: item[0][:2]):
        cells = []
        for metric in ("certified", "top1"):
            value, low, high = (f"{100 * pair[metric][key]:.1f}" for key in ("value", "low", "high"))
            cells += [value, f"{low} to {high}"]
        minutes = f"{pair['top1']['seconds'] / 60:.1f}"
        rows.append([f"{patch}×{patch} pixels", str(pair["top1"]["masks"]), str(n), *cells, minutes])
    return rows if len(rows) > 1 else []
