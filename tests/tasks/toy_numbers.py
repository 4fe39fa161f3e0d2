"""A kind of task outside the package: regression of the number shown by a handwritten digit."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn

import principal_attention as pa
from principal_attention.adapt.describe import describe
from principal_attention.evaluation.results import check_record, of_result
from principal_attention.evaluation.suite import Case, Group, Suite, Table
from principal_attention.plumbing.files import filling
from principal_attention.plumbing.fingerprints import fingerprint
from principal_attention.plumbing.layout import CARD, WEIGHTS
from principal_attention.plumbing.records import records_of
from principal_attention.plumbing.sections import Section
from principal_attention.plumbing.seeds import seed_all
from principal_attention.recipes import Recipe
from principal_attention.tasks import Kind
from principal_attention.training.batches import BatchPlan, divide
from principal_attention.training.engine import Task


class NumberRecipe(Recipe):
    task: Literal["numbers"] = "numbers"


class Ruler(nn.Module):
    """Attention over the eight rows of pixels, mean pooling, and a linear output."""

    def __init__(self, width):
        super().__init__()
        self.width, self.rows = width, nn.Linear(8, width)
        self.attention, self.read = pa.SelfAttention(width, 2), nn.Linear(8 * width, 1)

    def forward(self, images):
        rows = self.rows(images)
        return self.read(torch.relu(rows + self.attention(rows)).flatten(1)).squeeze(-1)


def digits(split):
    found = load_digits()
    part = slice(0, 1024) if split == "train" else slice(1024, 1088)
    return torch.tensor(found.images[part] / 16, dtype=torch.float32), torch.tensor(found.target[part]).float()


class NumberTask(Task):
    def __init__(self, recipe):
        self.recipe, self.images = recipe, {split: digits(split) for split in ("train", "test")}
        seed_all("initialisation", recipe.seed)
        self.model = Ruler(**recipe.model.options)
        self.plan = BatchPlan(1024, recipe.training.batch_size, recipe.seed)

    def batches(self, steps, place):
        shards, parts = divide(self.plan, steps, place, self.recipe.training.accumulate)
        images, numbers = self.images["train"]
        for step, part in shards:
            chosen = [index for index, _ in self.plan.shard(step, part, parts)]
            yield images[chosen], numbers[chosen]

    def loss(self, model, batch, step):
        images, numbers = batch
        return F.mse_loss(model(images + 0.01 * torch.randn_like(images)), numbers)

    @torch.no_grad()
    def evaluate(self, model, accelerator):
        images, numbers = self.images["test"]
        self.last = {"error": (model(images) - numbers).abs().mean().item()}
        return self.last

    def finish(self, model, accelerator):
        return records_of(self.recipe.name, "clean", "test", self.last, n=64, seed=self.recipe.seed)

    def save(self, folder, model):
        with filling(folder) as partial:
            save_file(model.state_dict(), partial / WEIGHTS)
            (partial / CARD).write_text(json.dumps({"architecture": "toy_numbers.Ruler", "width": model.width}))

    def headline(self, metrics):
        return f"off by {metrics['error']:.2f}"


class NumberSubject:
    def __init__(self, ref, device):
        self.name, self.model = ref.name, Ruler(ref.card["width"])
        self.model.load_state_dict(load_file(ref.folder / WEIGHTS))
        if ref.robustify:
            ref.robustify.put_into(self.model)
        self.robustify = describe(self.model)

    def fingerprint(self):
        return fingerprint(self.model.eval())


@dataclass(frozen=True)
class NumberBatch:
    number: int
    indices: list
    images: torch.Tensor
    numbers: torch.Tensor

    def first(self, count):
        return replace(self, indices=self.indices[:count], images=self.images[:count], numbers=self.numbers[:count])

    def to(self, device):
        return self


class Numbers:
    def __init__(self):
        self.images, self.numbers = digits("test")

    def __len__(self):
        return len(self.numbers)

    def fingerprint(self):
        return hashlib.sha256(self.images.numpy().tobytes()).hexdigest()[:8]

    def batches(self, size, wanted, workers):
        for number in wanted:
            part = slice(number * size, (number + 1) * size)
            yield NumberBatch(number, list(range(len(self))[part]), self.images[part], self.numbers[part])


class Clean(Suite):
    name, help = "clean", "How far off the numbers are."

    def groups(self, bench, options):
        numbers, name = bench.opened
        yield Group(name, numbers, [self._case(bench.count(len(numbers)), options)])

    def _case(self, n, options):
        return Case(self.name, self.name, n, lambda subject, batch: _read(subject, batch, 1.0))

    def summarise(self, subject, results):
        return [of_result(subject.name, r, "error", float(-self.score(r).mean())) for r in self.own(results)]

    def tables(self, records):
        rows = [[r["case"], self.setting(r), f"{r['value']:.3f}"] for r in records if r["metric"] == "error"]
        return [Table("off by", [["case", "setting", "mean error"], *rows])]

    def score(self, result):
        return -np.abs(result.columns["read"] - result.columns["shown"])


class DarkOptions(Section):
    dark: float = Field(0.5, gt=0, le=1, description="Share of the light that is left.")


class Dark(Clean):
    name, help, options = "dark", "How far off the numbers are in the dark.", DarkOptions
    check_title = "Was it dark?"

    def _case(self, n, options):
        pinned = {"dark": options.dark}
        return Case(self.name, self.name, n, lambda subject, batch: _read(subject, batch, options.dark), pinned)

    def checks(self, subject, results):
        shares = [result.description["dark"] for result in self.own(results)]
        return [check_record(subject.name, self.name, "darkness", x < 1, f"light {x:g}", n=1) for x in shares]

    def setting(self, record):
        return f"light {record['dark']:g}"


@torch.no_grad()
def _read(subject, batch, light):
    return {"read": subject.model(batch.images * light).tolist(), "shown": batch.numbers.tolist()}


class ReadNumbers(Kind):
    name, title, unit, recipe = "numbers", "readers of numbers", "digits", NumberRecipe
    suites = {suite.name: suite for suite in (Clean(), Dark())}  # noqa: RUF012

    def recognises(self, model):
        return model.architecture == "toy_numbers.Ruler"

    def task(self, recipe, processes):
        return NumberTask(recipe)

    def subject(self, model, device):
        return NumberSubject(model, device)

    def open_data(self, subject, model, choice):
        return Numbers(), "digits/test"


KIND = ReadNumbers()
