"""Put RPC-Attention into a trained timm model, fine-tune it, and compare its robustness with the original.

    .venv/bin/python examples/harden_timm.py

A small ViT is trained on scikit-learn's digits (real 8×8 images that it bundles), then fine-tuned without and
with `robustify`. Accuracy is printed for clean images and with a tenth of the pixels replaced. It takes about a minute
on two cores. To use your own model, replace `trained()`.
"""

import argparse
import copy

import principal_attention as pa  # isort: skip (first: lets timm import with a CPU build of torch)
import timm
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images, training labels, test images, test labels; the split is fixed."""
    images, labels = (torch.tensor(x) for x in (load_digits().images / 16, load_digits().target))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = images[order, None].float()
    return images[:1300], labels[order[:1300]], images[1300:], labels[order[1300:]]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float) -> None:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=lr, weight_decay=0.05)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return 100 * (model.eval()(images).argmax(-1) == labels).float().mean().item()


def spoiled(images: Tensor, share: float = 0.1) -> Tensor:
    """Replace a share of the pixels by random values: sparse errors, which RPC-Attention is meant to remove."""
    random = torch.Generator().manual_seed(1)
    hit = torch.rand(images.shape, generator=random) < share
    return torch.where(hit, torch.rand(images.shape, generator=random), images)


def trained(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    small = dict(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=48, depth=4, num_heads=4)
    model = timm.create_model("vit_tiny_patch16_224", **small)
    train(model, images, labels, epochs, lr=2e-3)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--epochs", type=int, default=20, help="training epochs; fine-tuning: a quarter (default: 20)")
    options = parser.parse_args()
    images, labels, test, truth = digits()
    results: dict[str, list[list[float]]] = {}
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        plain = trained(images, labels, options.epochs)
        robust = pa.robustify(copy.deepcopy(plain), pursuit=pa.Pursuit(4, 1.0, "cleaned"), layers="first")
        for name, model in (("as it is", plain), ("with RPC-Attention", robust)):
            for stage, epochs in (("at once", 0), ("after fine-tuning", max(1, options.epochs // 4))):
                train(model, images, labels, epochs, lr=5e-4)
                scores = [accuracy(model, x, truth) for x in (test, spoiled(test))]
                results.setdefault(f"{name}, {stage}", []).append(scores)
    print(robust.blocks[0].attn)
    print(f"\n{'accuracy over ' + str(options.seeds) + ' seeds':38} {'clean':>12} {'spoiled':>14}")
    for name, scores in results.items():
        values = torch.tensor(scores)
        spread = values.std(0) if len(scores) > 1 else torch.zeros(2)
        print(f"{name:38}" + "".join(f"   {m:5.1f} ± {s:4.1f}" for m, s in zip(values.mean(0), spread, strict=True)))


if __name__ == "__main__":
    main()
