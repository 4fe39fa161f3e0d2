"""What makes DeiT-tiny more robust: readings of RPC-Attention, defences without training, and `principal harden`.

    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/hardening.py run [ROW …]
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/hardening.py time
    .venv/bin/python benchmarks/hardening.py page

`run` divides the 2,000 images of `imagenet-val-2000` into 1,600 to train, calibrate and choose settings on and 400 to
measure on, and measures every cell of the table that docs/results/hardening.jsonl does not hold yet; with names of
rows, only these. Each line of that file says which images of a case were answered correctly, so differences are
paired by image whenever the rows were measured. A trained row takes about half an hour per seed to train on two cores
and as long to measure.
`time` measures the time of a forward pass of all untrained rows in turn. `page` writes docs/results/hardening.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from principal_attention.data.splits import hold_out
from principal_attention.evaluation.compare import on_same_examples
from principal_attention.evaluation.outcomes import Outcomes, Result
from principal_attention.plumbing.files import read_jsonl, write_jsonl, write_text
from principal_attention.plumbing.layout import RECORDS
from principal_attention.report.tables import for_markdown
from principal_attention.tasks.classes import right

DOCS, OUT = Path(__file__).parents[1] / "docs" / "results", Path("runs/hardening")
CELLS, PAGE = DOCS / "hardening.jsonl", DOCS / "hardening.md"
IMAGES = OUT / "images"  # train.parquet and validation.parquet
SEEDS = range(3)
HELD = 400
CLEANED, PAPER = "preset=cleaned,iterations=4,lam=1", "preset=paper,iterations=4,lam=4"


@dataclass(frozen=True)
class Row:
    """A model of the table."""

    title: str
    robustify: str | None = None  # as for --robustify
    against: str | None = None  # threat that it is hardened against; None: not trained

    def seeds(self, column: str) -> Sequence[int]:
        """Seeds that a column is measured for."""
        certified = column == "certificate" and self.against == "patch"
        return SEEDS if self.against and (certified or column in EVERY_SEED) else (0,)


def _hardened(against: str, title: str) -> dict[str, Row]:
    return {
        against: Row(f"hardened against {title}", None, against),
        f"{against}-cleaned": Row(f"`cleaned`, hardened against {title}", CLEANED, against),
        f"{against}-paper": Row(f"`paper`, hardened against {title}", PAPER, against),
    }


ROWS = {
    "untouched": Row("untouched"),
    "cleaned": Row("`cleaned`, n = 4, λ = 1, first layer", CLEANED),
    "paper": Row("`paper`, n = 4, λ = 4, first layer", PAPER),
    "authors": Row("`authors`, n = 4, λ = 4, first layer", "preset=authors,iterations=4,lam=4"),
    "admm": Row("`admm`, n = 4, λ = 0.25, first layer", "preset=admm,iterations=4,lam=0.25"),
    "tokens": Row("token pursuit, calibrated", f"preset=tokens,layers=[0,1,2,3,4,5],calibrate={IMAGES}"),
    "tokens-own": Row("token pursuit, not calibrated", "preset=tokens,layers=[0,1,2,3,4,5]"),
    "mcp": Row("reweighting, MCP, γ = 16, all layers", "preset=mcp,gamma=16,layers=all"),
    "huber": Row("reweighting, Huber, all layers", "preset=huber,layers=all"),
    "l1": Row("reweighting, ℓ1, all layers", "preset=l1,layers=all"),
    "temperature": Row("attention logits × 0.7, all layers", "preset=temperature,value=1.4286,layers=all"),
    **_hardened("linf", "ℓ∞"),
    **_hardened("corruptions", "corruptions"),
    **_hardened("patch", "patches"),
}
SOURCE = "timm:deit_tiny_patch16_224@DATA/deit-tiny/model.safetensors"
COLUMNS = {  # options of `principal evaluate`
    "clean": "--suite clean",
    "corruptions": "--suite corruptions --severities 3 --frost-dir DATA/frost --limit 200",
    "pgd": "--suite attacks --attacks pgd --eps 1/255 --steps 20 --limit 200",
    "apgd-t": "--suite attacks --attacks apgd-t --eps 1/255 --limit 50",
    "patches": "--suite patches --patch-attacks pgd,garbage --steps 100 --limit 40",
    "transfer": f"--suite patches --patch-attacks transfer --source {SOURCE} --steps 100 --limit 40",
    "evade": "--suite patches --patch-attacks evade --steps 100 --limit 40",
    "universal": f"--suite patches --patch-attacks universal --universal-data {IMAGES} --universal-split train "
    "--universal-steps 250 --limit 200",
    "certificate": "--suite certificate --patch 32 --limit 100",
}
ONLY = {"evade": ("tokens", "tokens-own")}  # columns that not all rows have
EVERY_SEED = ("clean", "corruptions", "pgd")  # the slower columns are measured for seed 0
FIRST = ("clean", "corruptions", "pgd", "certificate", "apgd-t", "transfer", "patches", "evade", "universal")
TRAINED = ("gaussian_noise", "defocus_blur", "fog", "pixelate")  # kinds in the recipe harden/corruptions


def write_images(data: Path) -> None:
    """Write the 1,600 and the 400 images."""
    import datasets

    if (IMAGES / "validation.parquet").is_file():
        return
    rows = datasets.load_dataset("parquet", data_files=str(data / "imagenet-val-2000" / "validation.parquet"))["train"]
    rows = rows.cast_column("image", datasets.Image(decode=False))
    kept, held = hold_out(len(rows), HELD, "images", "validation")
    IMAGES.mkdir(parents=True, exist_ok=True)
    rows.select(kept).to_parquet(str(IMAGES / "train.parquet"))
    rows.select(held).to_parquet(str(IMAGES / "validation.parquet"))


def principal(*words: str) -> None:
    print("principal", *words, flush=True)
    subprocess.run([sys.executable, "-W", "ignore", "-m", "principal_attention", *words], check=True)


def run(data: Path, rows: Sequence[str], seeds: Sequence[int] | None, columns: Sequence[str]) -> None:
    write_images(data)
    for seed in SEEDS if seeds is None else seeds:
        for name in rows:
            for column in columns:
                wanted = seed in ROWS[name].seeds(column) and name in ONLY.get(column, ROWS)
                if wanted and not _is_measured(name, seed, column):
                    _measure(name, seed, column, data)


def _is_measured(name: str, seed: int, column: str) -> bool:
    return any((cell["row"], cell["seed"], cell["column"]) == (name, seed, column) for cell in read_jsonl(CELLS))


def _measure(name: str, seed: int, column: str, data: Path) -> None:
    row = ROWS[name]
    model = SOURCE.replace("DATA", str(data))
    more = ["--robustify", row.robustify] if row.robustify else []
    if row.against:
        folder = OUT / f"{name}-{seed}"
        if not (folder / RECORDS).is_file():
            principal("train", f"harden/{row.against}", f"init_from={model}", f"data.source={IMAGES.resolve()}",
                      f"seed={seed}", *_recipe_keys(row.robustify), "--out", str(folder), "--resume")  # fmt: skip
        model, more = str(folder), []
    out = OUT / "evaluations" / f"{name}-{seed}-{column}"
    words = COLUMNS[column].replace("DATA", str(data)).split()
    principal("evaluate", model, "--data", str(IMAGES), "--split", "validation", *words, *more, "--out", str(out))
    found = [cell for result in Outcomes(out).results() for cell in _cells(result, name, seed, column)]
    with open(CELLS, "a", encoding="utf-8") as file:  # other rows may be measured at the same time
        file.write("".join(json.dumps(cell) + "\n" for cell in found))


def _recipe_keys(robustify: str | None) -> list[str]:
    return [f"robustify.{word}" for word in robustify.split(",")] if robustify else []


def _cells(result: Result, name: str, seed: int, column: str) -> Iterator[dict[str, Any]]:
    told = result.description
    if told["case"] == "gradients":
        return
    answers = {told["case"]: right(result)}
    if column == "certificate":
        answers = {"defended": right(result), "certified": right(result) & result.columns["certified"].astype(bool)}
    for case, correct in answers.items():
        bits = np.packbits(correct.astype(bool)).tobytes().hex()
        yield {"row": name, "seed": seed, "column": column, "case": case, "n": len(correct), "right": bits,
               "measured": result.measured, "minutes": round(result.seconds / 60, 1)}  # fmt: skip


def time_rows(data: Path) -> None:
    """Time of a forward pass of one image and of a batch, relative to the untouched model, in turn in one process."""
    import time

    import torch

    from principal_attention.adapt.named import ModelRef
    from principal_attention.adapt.spec import Robustify
    from principal_attention.tasks.image_classes.subject import ImageSubject

    write_images(data)
    names = [name for name, row in ROWS.items() if not row.against]
    models = {}
    for name in names:
        spec = ROWS[name].robustify
        ref = ModelRef.of(SOURCE.replace("DATA", str(data)), Robustify.parse(spec) if spec else None)
        models[name] = ImageSubject(ref).on_pixels
    lines = []
    with torch.inference_mode():
        for size, rounds in ((1, 41), (16, 11)):
            images = torch.rand(size, 3, 224, 224)
            taken: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(rounds):
                for name, model in models.items():
                    start = time.perf_counter()
                    model(images)
                    taken[name].append(time.perf_counter() - start)
            for name in names:
                ratios = np.array(taken[name]) / np.array(taken["untouched"])
                low, middle, high = np.quantile(ratios[1:], [0.25, 0.5, 0.75])
                lines.append({"row": name, "seed": 0, "column": "time", "case": f"batch {size}", "n": rounds - 1,
                              "value": round(float(middle), 3), "low": round(float(low), 3),
                              "high": round(float(high), 3), "measured": _today()})  # fmt: skip
                print(lines[-1], flush=True)
    write_jsonl(CELLS, [cell for cell in read_jsonl(CELLS) if cell["column"] != "time"] + lines)


def _today() -> str:
    from datetime import date

    return date.today().isoformat()


class Table:
    """The cells that were measured."""

    def __init__(self, cells: Sequence[dict[str, Any]]):
        self.cells = {(c["row"], c["seed"], c["column"], c["case"]): c for c in cells}

    def bits(self, row: str, seed: int, column: str, case: str) -> Any:
        """Which images were answered correctly; None if the cell is missing."""
        cell = self.cells.get((row, seed, column, case))
        if cell is None:
            return None
        return np.unpackbits(np.frombuffer(bytes.fromhex(cell["right"]), dtype=np.uint8))[: cell["n"]].astype(float)

    def scores(self, row: str, seed: int, column: str, cases: Sequence[str]) -> Any:
        """Mean over cases of every image's correctness; None if a cell is missing. Column "worst": whether an image
        survives every patch attack."""
        if column == "worst":
            return worst(self, row, seed)
        found = [self.bits(row, seed, column, case) for case in cases]
        return None if any(each is None for each in found) else np.mean(found, axis=0)

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(case for _, _, column, case in self.cells if column == "corruptions"))


def shown(table: Table, row: str, column: str, cases: Sequence[str]) -> str:
    """Mean over seeds ± standard deviation, in %; fewer seeds than planned are marked."""
    seeds = ROWS[row].seeds(column)
    values = [100 * x.mean() for seed in seeds if (x := table.scores(row, seed, column, cases)) is not None]
    if not values:
        return "–"
    text = f"{fmean(values):.1f}"
    if len(values) > 1:
        text += f" ± {stdev(values):.1f}"
    return text + (f" ({len(values)} of {len(seeds)} seeds)" if len(values) < len(seeds) else "")


def differences(table: Table, row: str, base: str, column: str, cases: Sequence[str]) -> str:
    """Difference in points of a row from another one, with the 95% interval over images; seeds are averaged first."""
    found = []
    for name in (row, base):
        each = [x for seed in SEEDS if (x := table.scores(name, seed, column, cases)) is not None]
        if not each:
            return "–"
        found.append(np.mean(each, axis=0))
    paired = on_same_examples(found[0], found[1])
    return f"{100 * paired.difference:+.1f} ({100 * paired.low:+.1f} to {100 * paired.high:+.1f})"


def worst(table: Table, row: str, seed: int) -> Any:
    """Images that survive every patch attack."""
    found = [table.bits(row, seed, column, case) for name, s, column, case in table.cells
             if (name, s) == (row, seed) and column in ("patches", "transfer", "evade", "universal")]  # fmt: skip
    size = min((len(each) for each in found), default=0)
    return np.min([each[:size] for each in found], axis=0) if found else None


HEAD = f"""`PRINCIPAL_DATA=… python benchmarks/hardening.py run`, measured {{}} to {{}}. Settings were chosen on 1,600
ImageNet validation images, on which the hardened models are also trained, without labels; all numbers are of the other
{HELD}. Cells are shares of correct answers in %; with ±, the mean over 3 seeds and the standard deviation. Slow columns
are of seed 0 alone.

Number of images: clean {HELD}, corruptions (severity 3) and PGD 200, APGD-T 50, patches 40 (universal 200), and
certificates 100. Budgets: ε = 1/255 in ℓ∞; patches of 32×32 pixels at one random place of each image."""
PAIRED = "In points, paired by image, with 95% intervals over images; seeds are averaged first."
UNSEEN = "11 kinds not trained on"


def times(table: Table) -> list[str]:
    """Section on the time of a forward pass."""
    cells = [cell for cell in table.cells.values() if cell["column"] == "time"]
    if not cells:
        return []
    cases, names = (list(dict.fromkeys(cell[key] for cell in cells)) for key in ("case", "row"))
    by = {
        (each["row"], each["case"]): f"{each['value']:.2f} ({each['low']:.2f} to {each['high']:.2f})" for each in cells
    }
    rows = [["model", *cases], *([ROWS[name].title, *(by[name, case] for case in cases)] for name in names)]
    return [
        "## Time", "", "Time of a forward pass relative to the untouched model, interleaved in one process: median and",
        "quartiles (`benchmarks/hardening.py time`). Hardened models have the architecture of the untouched one.", "",
        for_markdown(rows), "",
    ]  # fmt: skip


def page() -> None:
    table = Table(read_jsonl(CELLS))
    kinds = table.kinds()
    unseen = [kind for kind in kinds if kind not in TRAINED]
    parts: dict[str, tuple[str, Sequence[str]]] = {
        "clean": ("clean", ["clean"]), "noise": ("corruptions", ["gaussian_noise"]),
        "15 corruptions": ("corruptions", kinds), UNSEEN: ("corruptions", unseen),
        "PGD-20": ("pgd", ["pgd"]), "APGD-T": ("apgd-t", ["apgd-t"]),
    }  # fmt: skip
    patches: dict[str, tuple[str, Sequence[str]]] = {
        "garbage": ("patches", ["garbage"]), "transfer": ("transfer", ["transfer"]),
        "universal": ("universal", ["universal"]), "PGD-100": ("patches", ["pgd"]), "evade": ("evade", ["evade"]),
        "worst": ("worst", []),
        "certified": ("certificate", ["certified"]), "defended, clean": ("certificate", ["defended"]),
    }  # fmt: skip
    rows = [name for name in ROWS if any(cell["row"] == name for cell in table.cells.values())]

    def made(
        columns: dict[str, tuple[str, Sequence[str]]], cell: Callable[..., str], names: Sequence[str]
    ) -> list[str]:
        heads = ["model", *columns]
        return [for_markdown([heads, *([ROWS[name].title, *(cell(name, *each) for each in columns.values())]
                                       for name in names)]), ""]  # fmt: skip

    dates = sorted({cell["measured"] for cell in table.cells.values()})
    lines = ["# Hardening DeiT-tiny", "", *HEAD.format(dates[0], dates[-1]).splitlines(), ""]
    lines += ["## Noise, corruptions and ℓ∞ attacks", "", *made(parts, lambda *a: shown(table, *a), rows)]
    lines += ["## Patches", "", *made(patches, lambda *a: shown(table, *a), rows)]
    compared = {name: x for name, x in parts.items() if name != UNSEEN} | {"certified": patches["certified"]}
    others = [name for name in rows if name != "untouched"]
    lines += ["## Differences from the untouched model", "", PAIRED, ""]
    lines += made(compared, lambda name, *a: differences(table, name, "untouched", *a), others)
    added = [name for name in rows if ROWS[name].against and ROWS[name].robustify]
    if added:
        lines += [
            "## RPC-Attention on top of hardening",
            "",
            "Difference from the model hardened in the same way without",
        ]
        lines += ["RPC-Attention, as above.", ""]
        bases = {name: ROWS[name].against or "" for name in added}
        lines += made(compared, lambda name, *a: differences(table, name, bases[name], *a), added)
    lines += times(table)
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    start = before.find("## What to use")  # written by hand
    lines += [before[start:].rstrip(), ""] if start >= 0 else []
    write_text(PAGE, "\n".join(lines))
    print(PAGE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("run", "time", "page"))
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to measure; default: all of {', '.join(ROWS)}")
    parser.add_argument("--seeds", help="seeds to measure, as 0,1")
    parser.add_argument("--columns", default=",".join(FIRST), help="columns to measure, as clean,pgd")
    given = parser.parse_args()
    if given.part == "page":
        return page()
    data = Path(os.environ["PRINCIPAL_DATA"])
    if given.part == "time":
        return time_rows(data)
    unknown = [name for name in given.rows if name not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]}")
    seeds = None if given.seeds is None else [int(seed) for seed in given.seeds.split(",")]
    return run(data, given.rows or list(ROWS), seeds, given.columns.split(","))


if __name__ == "__main__":
    main()
