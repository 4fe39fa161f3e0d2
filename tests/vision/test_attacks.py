"""Attacks on a linear model, which succeed exactly when the budget exceeds the margin."""

import math

import pytest
import torch
from torch import nn

from principal_attention.errors import InputError
from principal_attention.vision.attacks import ATTACKS, attack
from principal_attention.vision.attacks.attack import within
from principal_attention.vision.attacks.spsa import estimate_gradient, margin

CHANNELS, SIDE = 3, 8
SIZE = CHANNELS * SIDE * SIDE
FAST = {
    "square": {"steps": 1500},
    "spsa": {"steps": 30, "samples": 256},
    "apgd-t": {"targets": 2},
    "fab-t": {"targets": 2},
}


class Linear(nn.Module):
    """Two classes divided by a plane at distance x·s/|s|, s: sign of each channel; two that are never predicted."""

    def __init__(self):
        super().__init__()
        signs = torch.tensor([1.0, -1.0, 1.0])[:, None, None].expand(CHANNELS, SIDE, SIDE)
        self.weight = nn.Parameter(signs.clone())

    def forward(self, images):
        value = ((images - 0.5) * self.weight).flatten(1).sum(1)
        return torch.stack([-value / 2, value / 2, value.detach() * 0 - 90, value.detach() * 0 - 91], 1)


def points(value, count=6):
    """Images whose value x·s is about ±value, slightly different from each other, far from 0 and 1."""
    model = Linear()
    images = 0.5 + 0.02 * torch.rand(count, CHANNELS, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % 2
    wanted = value * (2.0 * labels - 1)
    now = ((images - 0.5) * model.weight).flatten(1).sum(1)
    return images + ((wanted - now) / SIZE)[:, None, None, None] * model.weight, labels


# the least change that reaches the plane, in each norm: all weights are ±1
DISTANCE = {"linf": lambda value: value / SIZE, "l2": lambda value: value / math.sqrt(SIZE), "l1": lambda value: value}


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "noise"])
def test_a_linear_model_falls_exactly_when_the_budget_exceeds_its_margin(name):
    model = Linear()
    images, labels = points(2.0)
    distance = DISTANCE[ATTACKS[name].norm](2.0)
    enough = 2.0 if name == "square" else 1.3  # square's random search does not find every sign
    for eps, falls in ((0.85 * distance, False), (enough * distance, True)):
        changed = attack(name, model, images, labels, eps=eps, **FAST.get(name, {}))
        assert ((model(changed).argmax(1) != labels) == falls).all(), eps / distance


def test_noise_breaks_a_linear_model_as_often_as_chance_says():
    """The sum of 192 uniform numbers has deviation ε√(192/3); the share beyond the margin is a normal tail."""
    model = Linear()
    images, labels = points(1.0, count=2000)
    eps = 0.125
    changed = attack("noise", model, images, labels, eps=eps)
    share = 0.5 * math.erfc(1.0 / (eps * math.sqrt(SIZE / 3)) / math.sqrt(2))
    found = (model(changed).argmax(1) != labels).double().mean().item()
    assert found == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 2000))
    close = attack("noise", model, images, labels, eps=0.99 / SIZE)  # too little even if all values agreed
    assert (model(close).argmax(1) == labels).all()


@pytest.mark.parametrize("name", ATTACKS)
def test_changed_images_are_valid_and_within_the_budget(name):
    model = Linear()
    images = torch.rand(5, CHANNELS, SIDE, SIDE).round(decimals=1)  # many values at 0 and 1, where clipping bites
    labels = model(images).argmax(1)
    eps = {"linf": 0.07, "l2": 0.4, "l1": 3.0}[ATTACKS[name].norm]
    changed = attack(name, model, images, labels, eps=eps, **FAST.get(name, {}))
    order = {"linf": math.inf, "l2": 2, "l1": 1}[ATTACKS[name].norm]
    sizes = torch.linalg.vector_norm((changed - images).flatten(1), order, dim=1)
    assert (sizes <= eps * (1 + 1e-5) + 1e-6).all()  # x + δ − x is rounded to float32
    assert 0 <= changed.min() <= changed.max() <= 1
    assert not changed.requires_grad
    assert model.weight.requires_grad
    assert model.weight.grad is None


def test_what_leaves_the_budget_is_cut_or_given_back():
    images = torch.full((3, 1, 2, 2), 0.5)
    found = images + torch.tensor([0.1, 0.1001, 0.3])[:, None, None, None]
    kept = within(found, images, "linf", 0.1, (0.0, 1.0))
    torch.testing.assert_close(kept, images + 0.1)
    kept = within(found, images, "l2", 0.2, (0.0, 1.0))  # four values: the norm is twice the change
    torch.testing.assert_close(kept, images + torch.tensor([0.1, 0.1, 0.0])[:, None, None, None])


@pytest.mark.parametrize("name", ["fgsm", "pgd", "apgd-ce"])
def test_a_budget_of_a_few_roundings_is_still_used(name):
    model = Linear()
    images, labels = points(0.0005)
    changed = attack(name, model, images, labels, eps=1e-5)
    assert (model(changed).argmax(1) != labels).all()


def test_a_model_stays_in_the_mode_it_was_in():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5)).train()
    model[1].eval()
    attack("fgsm", model, torch.rand(2, 1, 2, 2), torch.tensor([0, 1]))
    assert [module.training for module in model] == [True, False, True, True]
    assert attack("pgd", model, torch.rand(0, 1, 2, 2), torch.tensor([]).long()).shape == (0, 1, 2, 2)


@pytest.mark.parametrize("name", ["pgd", "noise", "spsa"])
def test_an_image_is_attacked_the_same_in_every_batch(name):
    class Wavy(nn.Module):  # the result depends on the start
        def forward(self, images):
            return torch.sin(40 * images.flatten(1)[:, :8])

    images, labels, model = torch.rand(4, 1, 3, 3), torch.tensor([0, 1, 2, 3]), Wavy()
    options = {} if name == "noise" else {"steps": 3}
    state = torch.get_rng_state()
    together, again = (attack(name, model, images, labels, eps=0.1, indices=[4, 2, 9, 1], **options) for _ in range(2))
    alone = [
        attack(name, model, images[i : i + 1], labels[i : i + 1], eps=0.1, indices=[index], **options)
        for i, index in enumerate([4, 2, 9, 1])
    ]
    assert together.equal(again)
    assert together.equal(torch.cat(alone))
    assert not together.equal(attack(name, model, images, labels, eps=0.1, indices=[4, 2, 9, 1], seed=1, **options))
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("name", ["apgd-ce", "square", "autoattack"])
def test_the_others_repeat_with_their_seed(name):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(27, 6)).eval()
    images, labels = torch.rand(4, 3, 3, 3), torch.tensor([0, 1, 2, 3])
    options = {"steps": 5} if name != "autoattack" else {}
    state = torch.get_rng_state()
    first, again = (attack(name, model, images, labels, eps=0.02, **options) for _ in range(2))
    assert first.equal(again)
    assert torch.get_rng_state().equal(state)


def test_spsa_estimates_the_numerical_gradient():
    """Gradient of a cubic from 40,000 queries; the estimate's deviation is |∇f|·√(d/pairs)."""
    torch.manual_seed(0)
    image, a, b = torch.rand(1, 3, 3), torch.randn(1, 3, 3), torch.randn(1, 3, 3)

    def loss(batch):
        return (a * batch + b * batch**3).flatten(1).sum(1)

    pairs = 20_000
    found = estimate_gradient(loss, image, delta=0.01, samples=2 * pairs, generator=torch.Generator().manual_seed(0))
    numeric = torch.zeros_like(image)
    for place in range(image.numel()):
        step = torch.zeros_like(image)
        step.view(-1)[place] = 0.01
        numeric.view(-1)[place] = ((loss((image + step)[None]) - loss((image - step)[None])) / 0.02).item()
    deviation = numeric.norm() * math.sqrt(image.numel() / pairs)
    assert (found - numeric).norm() < 3 * deviation
    odd = estimate_gradient(loss, image, delta=0.01, samples=7, generator=torch.Generator().manual_seed(0))
    assert odd.shape == image.shape


def test_the_margin_is_to_the_best_other_class():
    logits = torch.tensor([[3.0, 1.0, 2.5], [0.0, 4.0, -1.0]])
    assert margin(logits, torch.tensor([0, 2])).tolist() == [0.5, -5.0]


def test_attacks_without_bounds_for_normalised_images():
    model = Linear()
    images, labels = points(2.0)
    images = images + 5.0 * torch.tensor([1.0, 1.0, 0.0])[:, None, None]  # two channels that cancel: the value stays
    eps = 1.2 * 2.0 / SIZE
    for name in ("fgsm", "pgd", "spsa"):
        changed = attack(name, model, images, labels, eps=eps, bounds=(-math.inf, math.inf), **FAST.get(name, {}))
        assert (model(changed).argmax(1) != labels).all()
        assert changed.max() > 5


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("nuke", {}, "there is no attack 'nuke'; expected one of fgsm, pgd"),
        ("pgd", {"eps": 0.0}, "eps is 0.0; expected a positive number"),
        ("pgd", {"eps": math.nan}, "eps is nan"),
        ("fgsm", {"steps": 3}, "fgsm takes no steps, but 3 were given"),
        ("pgd", {"steps": 0}, "steps is 0; expected at least 1"),
        ("pgd", {"targets": 3}, "pgd takes no option 'targets'; it has step"),
        ("square", {"bounds": (-math.inf, math.inf)}, "square takes images in \\[0, 1\\] only"),
        ("pgd", {"labels": torch.zeros(1, 2).long()}, "expected one per image"),
        ("pgd", {"images": torch.full((2, 3, 8, 8), 2.5)}, "normalise the images inside the model"),
    ],
)
def test_what_cannot_be_attacked(name, options, sentence):
    images, labels = options.pop("images", torch.rand(2, 3, 8, 8)), options.pop("labels", torch.tensor([0, 1]))
    with pytest.raises(InputError, match=sentence):
        attack(name, Linear(), images, labels, **options)


@pytest.mark.parametrize("name", ["apgd-t", "autoattack"])
def test_too_few_classes_for_a_targeted_loss(name):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(InputError, match=f"{name} needs at least 4 classes; the model has 3"):
        attack(name, model, torch.rand(1, 1, 2, 2), torch.tensor([0]))
