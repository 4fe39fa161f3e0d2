"""Model, data and command for the tests of evaluation."""

import numpy as np
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from principal_attention.cli.app import app
from principal_attention.plumbing.files import read_jsonl
from principal_attention.vision.models.classifier import Classifier, View

SIDE, CLASSES = 32, ("bars", "dots", "plain", "rings")
OPTIONS = dict(img_size=SIDE, patch_size=8, embed_dim=24, depth=2, num_heads=2, num_classes=4)
HALF = (0.5, 0.5, 0.5)


def pictures(count, seed=0):
    """Images (count, 3, 32, 32) with integer grey levels, and their classes."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE]
    images, labels = [], []
    for i in range(count):
        phase = random.uniform(0, 6)
        pattern = [
            np.sin(0.8 * x + phase), np.sin(0.8 * x + phase) * np.sin(0.8 * y), np.zeros_like(x, dtype=float),
            np.sin(0.8 * np.hypot(x - 16, y - 16) + phase),
        ][i % 4]  # fmt: skip
        grey = 0.5 + 0.12 * pattern + 0.05 * random.standard_normal((SIDE, SIDE))
        tint = random.uniform(0.85, 1.0, (3, 1, 1))
        images.append(np.clip(grey * tint, 0, 1))
        labels.append(i % 4)
    return torch.from_numpy(np.stack(images)).float().mul(255).round().div(255), torch.tensor(labels)


def create(name, **options):
    import timm

    return timm.create_model(name, **options)


def fit(model, steps=60):
    """Train on the images; a few seconds."""
    images, labels = pictures(256)
    torch.manual_seed(0)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        chosen = torch.arange(64) + 64 * (step % 4)
        adam.zero_grad()
        F.cross_entropy(model((images[chosen] - 0.5) / 0.5), labels[chosen]).backward()
        adam.step()
    return model.eval()


def save(model, path, labels=CLASSES, options=OPTIONS):
    path.mkdir(parents=True, exist_ok=True)
    model.pretrained_cfg |= {"mean": HALF, "std": HALF, "input_size": (3, SIDE, SIDE)}
    view = View(SIDE, 3, HALF, HALF, len(labels or ()) or 4)
    Classifier(model, view, dict(options), labels).save(path)
    return path


def principal(*arguments, code=0):
    """Output of `principal evaluate` with these arguments."""
    found = CliRunner().invoke(app, ["evaluate", *map(str, arguments)], env={"COLUMNS": "140"})
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


def records(folder, **wanted):
    return [r for r in read_jsonl(folder / "records.jsonl") if all(r.get(key) == x for key, x in wanted.items())]
