"""Certificates of DeiT-tiny against patches: speed against painted masks, and attacks on certified images.

    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/certificates.py speed --images 20 --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/certificates.py soundness --images 20 --write

The folder holds `imagenet-val-2000` and `deit-tiny`. The numbers of each image are kept in runs/certificates, so that
the same command resumes; sections are written to docs/results/certificates.md. On one core, an image takes a minute or
two (`speed`) or, where it is certified, several (`soundness`).
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pages import keep, measured
from principal_attention.adapt.named import ModelRef
from principal_attention.plumbing.files import read_jsonl
from principal_attention.plumbing.records import MEASURED
from principal_attention.report.tables import for_markdown
from principal_attention.tasks.classes import interval
from principal_attention.tasks.image_classes.examples import open_images
from principal_attention.tasks.image_classes.subject import ImageSubject
from principal_attention.tasks.kind import DataChoice
from principal_attention.vision.certify import MaskedCertifier
from principal_attention.vision.tokens import keeping

PAGE, OUT = Path(__file__).parents[1] / "docs" / "results" / "certificates.md", Path("runs/certificates")
TITLE = "Certificates against patches"
PATCH = 32
PLACES = [(top, left) for top in (0, 88, 192) for left in (0, 101, 192)]  # the middle ones lie across tokens
STEPS, STEP = 100, 0.1


class Unordered(MaskedCertifier):
    """Pairs of masks in the order of their numbers."""

    def _ordered(self, label: int, logits: Tensor, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return pairs


class Painted(Unordered):
    """Grey masks on pixels instead of removed tokens, one pair at a time."""

    def _learn(self, images: Tensor, wanted: list[tuple[int, int, int]], known: Any) -> Tensor:
        found = []
        for image, first, second in wanted:
            logits = self.model(self.paint(images[image], first, second))
            known.add([(image, first, second)], logits, self.tolerance)
            found.append(logits)
        return torch.cat(found) if found else torch.empty(0)

    def paint(self, image: Tensor, first: int, second: int) -> Tensor:
        grid = self.grid
        tokens = (self.removed[first] | self.removed[second]).reshape(grid.rows, grid.columns)
        pixels = tokens.repeat_interleave(grid.height, 0).repeat_interleave(grid.width, 1)
        return torch.where(pixels, 0.5, image)[None]


def all_pairs(certifier: Painted) -> Callable[[Tensor, int], tuple[bool, int]]:
    """Certificate of one image by every single mask and pair."""

    @torch.no_grad()
    def certify(image: Tensor, label: int) -> tuple[bool, int]:
        every = range(certifier.masks)
        shown = (certifier.paint(image, first, second) for first in every for second in every if first <= second)
        answers = [int(certifier.model(each).argmax()) for each in shown]
        return set(answers) == {label}, len(answers)

    return certify


def stopping(certifier: MaskedCertifier) -> Callable[[Tensor, int], tuple[bool, int]]:
    """Certificate and defended answer of one image, until the first wrong pair."""
    counted: list[int] = []
    certifier.model.register_forward_hook(lambda *called: counted.append(len(called[2])))

    def certify(image: Tensor, label: int) -> tuple[bool, int]:
        counted.clear()
        found = certifier.for_labels(image[None], torch.tensor([label]))
        return bool(found.certified) and int(found.answers) == label, sum(counted)

    return certify


def examples(data: Path, count: int, done: set[int]) -> tuple[nn.Module, Iterator[tuple[int, Tensor, int]]]:
    """DeiT-tiny on images in [0, 1], and the stratified images that are not done: number, pixels, label."""
    ref = ModelRef.of(f"timm:deit_tiny_patch16_224@{data / 'deit-tiny'}")
    subject = ImageSubject(ref)
    images, _ = open_images(subject, ref, DataChoice(str(data / "imagenet-val-2000")))
    wanted = [number for number in range(count) if int(images.order[number]) not in done]
    found = ((each.indices[0], each.images[0], int(each.labels[0])) for each in images.batches(1, wanted, 0))
    return subject.on_pixels, found


def append(path: Path, line: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line | {MEASURED: date.today().isoformat()}) + "\n")
    print(line, flush=True)


def measure_speed(data: Path, count: int, path: Path) -> None:
    model, images = examples(data, count, {line["index"] for line in read_jsonl(path)})
    ways = {
        "painted, all pairs": all_pairs(Painted(model, PATCH)),
        "painted": stopping(Painted(model, PATCH)),
        "removed, unordered": stopping(Unordered(model, PATCH)),
        "removed": stopping(MaskedCertifier(model, PATCH)),
    }
    for turn, (index, image, label) in enumerate(images):
        line: dict[str, Any] = {"index": index}
        names = list(ways)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:  # interleaved, each in every place
            start = time.perf_counter()
            certified, passes = ways[name](image, label)
            line[name] = {"seconds": time.perf_counter() - start, "certified": certified, "passes": passes}
        append(path, line)


WAYS = {
    "painted, all pairs": "grey masks on pixels, one pair at a time, all pairs",
    "painted": "the same until the first wrong pair",
    "removed, unordered": "tokens removed, in batches, until the first wrong pair",
    "removed": "the same with likely wrong pairs first (`pa.MaskedCertifier`)",
}


def tell_speed(lines: list[dict[str, Any]]) -> list[str]:
    total = {way: sum(line[way]["seconds"] for line in lines) for way in WAYS}
    rows = [["way", "certified", "forward passes per image", "time / that of the last row"]]
    for way, words in WAYS.items():
        certified = sum(line[way]["certified"] for line in lines)
        passes = sum(line[way]["passes"] for line in lines) / len(lines)
        rows.append([words, f"{certified} of {len(lines)}", f"{passes:.0f}", f"{total[way] / total['removed']:.2f}"])
    return [
        f"DeiT-tiny, patches of {PATCH}×{PATCH} pixels, 36 masks, the same images and masks for every row, interleaved",
        "image by image in one process. Grey masks make another defended classifier, with other certified images. The",
        "last three rows also find the defended answer of images that are not certified.", "",
        for_markdown(rows), "",
    ]  # fmt: skip


def attack(model: nn.Module, certifier: MaskedCertifier, image: Tensor, label: int) -> Tensor:
    """Images with a patch at each place: signed ascent on the loss averaged over a random mask and a random pair, in
    turn, from noise."""
    random = torch.Generator().manual_seed(0)
    area = torch.zeros(len(PLACES), 1, *image.shape[1:])
    for each, (top, left) in zip(area, PLACES, strict=True):
        each[:, top : top + PATCH, left : left + PATCH] = 1
    found = image * (1 - area) + torch.rand(len(PLACES), *image.shape, generator=random) * area
    labels = torch.full((len(PLACES),), label)
    for step in range(STEPS):
        pair = certifier.removed[torch.randint(certifier.masks, (2,), generator=random)]
        kept = (~(pair.any(0) if step % 2 else pair[0])).nonzero().flatten()
        found.requires_grad_()
        with keeping(model, kept):
            loss = F.cross_entropy(model(found), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, found)
        found = (found.detach() + STEP * gradient.sign() * area).clamp(0, 1)
    return found


def measure_soundness(data: Path, count: int, path: Path) -> None:
    model, images = examples(data, count, {line["index"] for line in read_jsonl(path)})
    certifier = MaskedCertifier(model, PATCH)
    for index, image, label in images:
        answers, certified = certifier.for_labels(image[None], torch.tensor([label]))
        line: dict[str, Any] = {"index": index, "right": int(answers) == label, "certified": bool(certified)}
        if certified:
            found = attack(model, certifier, image, label)
            with torch.no_grad():
                line["undefended"] = int((model(found).argmax(1) != label).sum())
            line["defended"] = int((certifier(found).answers != label).sum())
            line["attacks"] = len(found)
        append(path, line)


def tell_soundness(lines: list[dict[str, Any]]) -> list[str]:
    attacked = [line for line in lines if line["certified"]]
    shown = {name: sum(line[name] for line in attacked) for name in ("attacks", "undefended", "defended")}
    shares = [
        f"{sum(line[key] for line in lines)} ({100 * low:.0f} to {100 * high:.0f}%)"
        for key in ("certified", "right")
        for low, high in (interval(sum(line[key] for line in lines), len(lines)),)
    ]
    return [
        f"{len(lines)} images: {shares[0]} certified against any patch of {PATCH}×{PATCH} pixels, {shares[1]} answered",
        f"correctly by the defended model. Each certified image was attacked at {len(PLACES)} places through the",
        f"defence: {STEPS} steps of {STEP} from noise, ascending the loss without a random mask or pair of masks. Of",
        f"{shown['attacks']} attacked images, the undefended model's answer changed on {shown['undefended']}, the",
        f"defended answer on {shown['defended']}.", "",
    ]  # fmt: skip


PARTS = {
    "speed": (measure_speed, tell_speed, "Speed"),
    "soundness": (measure_soundness, tell_soundness, "Attacks on certified images"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--images", type=int, default=20, help="number of images; default: 20")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch; default: 1")
    parser.add_argument("--write", action="store_true", help="write the section to docs/results")
    arguments = parser.parse_args()
    if "PRINCIPAL_DATA" not in os.environ:
        sys.exit("PRINCIPAL_DATA is not set; expected the folder described at the top of this file")
    torch.set_num_threads(arguments.threads)
    measure, tell, heading = PARTS[arguments.part]
    path = OUT / f"{arguments.part}.jsonl"
    measure(Path(os.environ["PRINCIPAL_DATA"]), arguments.images, path)
    lines = [
        f"## {heading}", "",
        f"`PRINCIPAL_DATA=… python benchmarks/certificates.py {arguments.part} --images {arguments.images} --threads "
        f"{arguments.threads} --write`, {measured([path])}, torch {torch.__version__.split('+')[0]}.", "",
        *tell(read_jsonl(path)),
    ]  # fmt: skip
    print("\n".join(lines))
    if arguments.write:
        keep(PAGE, lines, title=TITLE)


if __name__ == "__main__":
    main()
