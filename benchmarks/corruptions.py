"""Our fifteen corruptions compared with imagecorruptions-imaug: pixels, accuracy, speed, and a figure.

    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/corruptions.py --write

The folder holds `imagenet-val-2000` (columns image and label, 224×224), `deit-tiny` (timm's weights as safetensors) and
`frost` (ImageNet-C's six textures). The other library is not a dependency of this project, because it needs numba and
OpenCV with its X11 libraries; first run `pip install imagecorruptions-imaug==1.1.5`. Measurements are kept in
runs/corruptions, so that a run resumes after an interruption; about an hour on two cores.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from pages import measured
from principal_attention.plumbing.files import read_jsonl, write_jsonl, write_text
from principal_attention.plumbing.records import MEASURED
from principal_attention.report.tables import for_markdown as markdown
from principal_attention.tasks.image_classes.examples import Images
from principal_attention.tasks.image_classes.subject import ImageSubject
from principal_attention.vision.corruptions import CORRUPTIONS, SEVERITIES, corrupt, made_textures, read_textures
from principal_attention.vision.data import open_split

OUT, DOCS = Path("runs/corruptions"), Path(__file__).parents[1] / "docs"
DETERMINISTIC = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
ALIKE, ACCURACY, BATCH, SEVERITY = 100, 1000, 64, 3  # images compared, classified, timed; severity of the latter two
MORE = {"frost": 500, "fog": 500}  # images compared where one random draw affects the whole image


def theirs(job: tuple[np.ndarray, int, str, int]) -> np.ndarray:
    import imagecorruptions

    image, severity, name, seed = job
    np.random.seed(seed)
    return imagecorruptions.corrupt(image, severity, name)


def levels(images: torch.Tensor) -> np.ndarray:
    return (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def compare(images: torch.Tensor, textures, pool) -> None:
    """Mean absolute difference in grey levels, and Kolmogorov-Smirnov tests of the means and spreads of the changes."""
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            if done("alike", name, severity):
                continue
            chosen = images[: MORE.get(name, ALIKE)]
            pixels = levels(chosen)
            ours = levels(corrupt(chosen, name, severity, frost=textures)).astype(float)
            jobs = [(image, severity, name, i) for i, image in enumerate(pixels)]
            other = np.stack(list(pool.map(theirs, jobs, chunksize=10))).astype(float)
            found = {"distance": float(np.abs(ours - other).mean())}
            changes = [x - pixels for x in (ours, other)]
            for what, of in (("mean", lambda x: x.mean((1, 2, 3))), ("spread", lambda x: x.std((1, 2, 3)))):
                a, b = (of(x) for x in changes)
                found |= {f"{what}_ours": float(a.mean()), f"{what}_theirs": float(b.mean())}
                found[f"{what}_p"] = float(stats.ks_2samp(a, b).pvalue)
            keep("alike", name, severity, **found)


def classify(subject: ImageSubject, images: Images, textures, pool) -> None:
    """Top-1 of DeiT-tiny with the corruptions of both libraries, on the same images."""
    for name in CORRUPTIONS:
        if done("accuracy", name, SEVERITY):
            continue
        right = np.zeros((2, ACCURACY), dtype=bool)
        at = 0
        for batch in images.batches(50, range(ACCURACY // 50), 1):
            ours = corrupt(batch.images, name, SEVERITY, indices=batch.indices, frost=textures)
            jobs = [(image, SEVERITY, name, i) for image, i in zip(levels(batch.images), batch.indices, strict=True)]
            other = torch.from_numpy(np.stack(list(pool.map(theirs, jobs, chunksize=5)))).permute(0, 3, 1, 2) / 255
            with torch.inference_mode():
                for row, changed in enumerate((ours, other)):
                    answers = subject.on_pixels(changed).argmax(1) == batch.labels
                    right[row, at : at + len(answers)] = answers.numpy()
            at += len(batch.labels)
        keep("accuracy", name, SEVERITY, ours=float(right[0].mean()), theirs=float(right[1].mean()),
             only_ours=int((right[0] & ~right[1]).sum()), only_theirs=int((right[1] & ~right[0]).sum()))  # fmt: skip


def race(images: torch.Tensor, textures, pool) -> None:
    """Seconds per batch: ours in one process with all cores, the other library in one and in two processes."""
    pixels = levels(images)
    for name in CORRUPTIONS:
        if done("speed", name, SEVERITY):
            continue
        rounds = []
        for _ in range(4):  # the first round is a warm-up
            spent = []
            jobs = [(image, SEVERITY, name, i) for i, image in enumerate(pixels)]
            for run in (
                lambda: corrupt(images, name, SEVERITY, frost=textures),  # noqa: B023
                lambda: [theirs(job) for job in jobs],  # noqa: B023
                lambda: list(pool.map(theirs, jobs, chunksize=8)),  # noqa: B023
            ):
                start = time.perf_counter()
                run()
                spent.append(time.perf_counter() - start)
            rounds.append(spent)
        ours, one, two = np.median(rounds[1:], axis=0)
        keep("speed", name, SEVERITY, ours=ours, one=one, two=two)


def sheet(path: Path) -> None:
    """Figure of all corruptions at all severities, on scikit-learn's `china.jpg` instead of the evaluation images."""
    from PIL import Image, ImageDraw
    from sklearn.datasets import load_sample_image

    image = torch.from_numpy(load_sample_image("china.jpg")[60:284, 180:404].copy()).permute(2, 0, 1) / 255
    side, left, top = 96, 120, 18
    page = Image.new("RGB", (left + 5 * side, top + 15 * side), "white")
    pen = ImageDraw.Draw(page)
    for column, severity in enumerate(SEVERITIES):
        pen.text((left + column * side + 4, 3), f"severity {severity}", fill="black")
    for row, name in enumerate(CORRUPTIONS):
        pen.text((4, top + row * side + side // 2 - 6), name, fill="black")
        for column, severity in enumerate(SEVERITIES):
            made = Image.fromarray(levels(corrupt(image[None], name, severity))[0]).resize((side, side))
            page.paste(made, (left + column * side, top + row * side))
    path.parent.mkdir(parents=True, exist_ok=True)
    page.quantize(128).save(path, optimize=True)


def keep(what: str, name: str, severity: int, **found: float) -> None:
    lines = read_jsonl(OUT / "found.jsonl")
    told = {"what": what, "name": name, "severity": severity, MEASURED: date.today().isoformat()}
    write_jsonl(OUT / "found.jsonl", [*lines, told | found])
    print(what, name, severity, json.dumps(found), flush=True)


def done(what: str, name: str, severity: int) -> bool:
    return any((x["what"], x["name"], x["severity"]) == (what, name, severity) for x in read_jsonl(OUT / "found.jsonl"))


def report() -> str:
    found = read_jsonl(OUT / "found.jsonl")
    alike = {(x["name"], x["severity"]): x for x in found if x["what"] == "alike"}
    same = [["", *(f"severity {s}" for s in SEVERITIES)]]
    for name in DETERMINISTIC:
        same.append([name, *(f"{alike[name, s]['distance']:.2f}" for s in SEVERITIES)])
    random = [["", "mean change, ours / theirs", "spread, ours / theirs", "p of the means", "p of the spreads"]]
    for name in CORRUPTIONS:
        if name not in DETERMINISTIC:
            rows = [alike[name, s] for s in SEVERITIES]
            cells = [
                ", ".join(f"{x[f'{what}_ours']:.1f} / {x[f'{what}_theirs']:.1f}" for x in rows)
                for what in ("mean", "spread")
            ]
            ps = [", ".join(f"{x[f'{what}_p']:.2f}" for x in rows) for what in ("mean", "spread")]
            random.append([name, *cells, *ps])
    accuracy = [["", "ours", "theirs", "difference"]]
    classified = {x["name"]: x for x in found if x["what"] == "accuracy"}
    for name in CORRUPTIONS:
        x = classified[name]
        accuracy.append(
            [name, *(f"{100 * v:.1f}" for v in (x["ours"], x["theirs"])), f"{100 * (x['ours'] - x['theirs']):+.1f}"]
        )
    means = [np.mean([x[key] for x in classified.values()]) for key in ("ours", "theirs")]
    accuracy.append(["mean", *(f"{100 * v:.1f}" for v in means), f"{100 * (means[0] - means[1]):+.1f}"])
    speed = [["", "ours, ms per image", "theirs, one process", "theirs, two processes"]]
    timed = {x["name"]: x for x in found if x["what"] == "speed"}
    for name in CORRUPTIONS:
        speed.append([name, *(f"{1e3 * timed[name][key] / BATCH:.1f}" for key in ("ours", "one", "two"))])
    total = {key: sum(x[key] for x in timed.values()) for key in ("ours", "one", "two")}
    speed.append(["all fifteen", *(f"{1e3 * total[key] / BATCH:.1f}" for key in ("ours", "one", "two"))])
    ratios = f"{total['one'] / total['ours']:.1f} and {total['two'] / total['ours']:.1f}"
    return TEXT.format(
        today=measured([OUT / "found.jsonl"]), torch=torch.__version__.split("+")[0], cores=os.cpu_count(),
        n=ALIKE, more=MORE["frost"], m=ACCURACY, batch=BATCH, same=markdown(same), random=markdown(random),
        accuracy=markdown(accuracy), speed=markdown(speed), ratios=ratios,
    )  # fmt: skip


TEXT = """# The fifteen corruptions compared with imagecorruptions-imaug

`PRINCIPAL_DATA=… python benchmarks/corruptions.py --write`, {today}, torch {torch}, {cores} cores. *ours* is this
package, *theirs* is imagecorruptions-imaug; both use the same photographs of frost.

![All fifteen corruptions at five severities, with synthetic frost](../corruptions.png)

(The photograph is scikit-learn's `china.jpg`, by danielbuechele, CC BY 2.0.)

## Deterministic corruptions

Mean absolute difference between ours and theirs in grey levels (of 255), over {n} ImageNet images:

{same}

## Random corruptions

The libraries draw different random numbers, so the change of each image is compared by its mean and its standard
deviation (*spread*) over the pixels, in grey levels, at severities 1 to 5. p is that of the Kolmogorov-Smirnov test
that the {n} means (spreads) of both libraries have the same distribution; {more} images for frost and fog, where one
draw affects the whole image.

{random}

## Accuracy of a model

Top-1 of DeiT-tiny in %, severity 3, the same {m} images:

{accuracy}

## Speed

Batches of {batch} images of 224×224 at severity 3, median of three rounds. Theirs takes {ratios} times as long as
ours, in one process and in two.

{speed}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--write", action="store_true", help="write docs/results/corruptions.md and docs/corruptions.png"
    )
    write = parser.parse_args().write
    if "PRINCIPAL_DATA" not in os.environ:
        sys.exit("PRINCIPAL_DATA is not set; expected the folder described at the top of this file")
    data = Path(os.environ["PRINCIPAL_DATA"])
    subject = ImageSubject(f"timm:deit_tiny_patch16_224@{data / 'deit-tiny'}")
    images = Images(open_split(str(data / "imagenet-val-2000")), subject.view, None)
    textures = read_textures(data / "frost")
    (batch,) = images.batches(max(MORE.values()), [0], 0)
    made_textures()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        race(batch.images[:BATCH], textures, pool)
        compare(batch.images, textures, pool)
        classify(subject, images, textures, pool)
    if write:
        sheet(DOCS / "corruptions.png")
        write_text(DOCS / "results" / "corruptions.md", report())
    else:
        print(report())


if __name__ == "__main__":
    main()
