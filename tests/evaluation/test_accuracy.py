"""Accuracy, comparisons, noise and the two attacks of the demo."""

import math

import pytest
import torch
from torch import nn

from principal_attention.errors import InputError
from principal_attention.evaluation.accuracy import Accuracy, count
from principal_attention.evaluation.attacks import attack
from principal_attention.evaluation.compare import paired, percent
from principal_attention.evaluation.pixels import OnPixels, gaussian_noise


class Fixed(nn.Module):
    """Logits that are the images themselves."""

    def forward(self, images):
        return images


def test_accuracy_counts_each_example_once_in_unequal_batches():
    torch.manual_seed(0)
    logits, labels = torch.randn(23, 8), torch.randint(8, (23,))
    batches = [(logits[i : i + 5], labels[i : i + 5]) for i in range(0, 23, 5)]
    found = Accuracy.of(count(Fixed(), batches))
    ranks = (logits > logits.gather(1, labels[:, None])).sum(1)
    assert found.n == 23
    assert found.top1 == pytest.approx((ranks == 0).double().mean().item())
    assert found.top5 == pytest.approx((ranks < 5).double().mean().item())
    assert found.loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-6)
    halves = [count(Fixed(), half) for half in (batches[:2], batches[2:])]
    assert Accuracy.of(halves[0] + halves[1]).top1 == found.top1


def test_fewer_classes_than_five_and_no_examples_at_all():
    assert Accuracy.of(count(Fixed(), [(torch.eye(3), torch.arange(3))])).top5 == 1.0
    with pytest.raises(InputError, match="no images to measure"):
        Accuracy.of(count(Fixed(), []))


def test_an_error_in_the_place_of_a_batch_is_raised():
    with pytest.raises(InputError, match="broken"):
        count(Fixed(), [InputError("broken")])


def test_pixels_and_normalised_images_are_two_views_of_one():
    images = torch.rand(2, 3, 4, 4)
    model = OnPixels(nn.Flatten(), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    normalised = (images - torch.tensor((0.1, 0.2, 0.3))[:, None, None]) / torch.tensor((0.5, 0.6, 0.7))[:, None, None]
    torch.testing.assert_close(model(images), normalised.flatten(1))
    torch.testing.assert_close(model.pixels(normalised), images)


def test_noise_belongs_to_the_image_not_to_the_batch():
    images = torch.full((6, 1, 64, 64), 0.5)
    whole = gaussian_noise(images, 0.1)
    parts = torch.cat([gaussian_noise(images[:2], 0.1), gaussian_noise(images[2:], 0.1, first=2)])
    assert whole.equal(parts)
    assert not whole.equal(gaussian_noise(images, 0.1, seed=1))
    # 24,576 draws: the deviation is known to half a percent (1/√(2n)); clipping at 5σ does not show
    assert whole.std().item() == pytest.approx(0.1, rel=0.02)
    assert 0 <= gaussian_noise(images, 5.0).min() < gaussian_noise(images, 5.0).max() <= 1


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_a_linear_model_falls_exactly_when_the_budget_exceeds_its_margin(name):
    """f(x) = w·x decides by sign; the worst change of ε a pixel moves it by ε‖w‖₁."""
    weight = torch.tensor([[1.0, -2.0, 0.5, 1.5]])
    images = torch.tensor([[0.5, 0.4, 0.5, 0.5], [0.5, 0.6, 0.5, 0.5]]).reshape(2, 1, 2, 2)

    class Linear(nn.Module):
        def forward(self, x):
            value = x.flatten(1) @ weight.T
            return torch.cat([-value, value], dim=1)

    model = Linear()
    values = (images.flatten(1) @ weight.T).flatten()
    labels = (values > 0).long()
    margins = values.abs() / weight.abs().sum()
    for eps, falls in ((0.9 * margins.min().item(), False), (1.1 * margins.max().item(), True)):
        changed = attack(name, model, images, labels, eps=eps)
        assert ((model(changed).argmax(1) != labels) == falls).all()
        assert (changed - images).abs().max() <= eps + 1e-6  # rounding of x + δ − x in float32
        assert changed.min() >= 0
        assert changed.max() <= 1


def test_an_attack_is_the_same_each_time_and_leaves_the_random_numbers_alone():
    class Wavy(nn.Module):  # on which the end depends on the start
        def forward(self, images):
            return torch.sin(40 * images.flatten(1))

    images, labels, model = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 2, 3]), Wavy()
    state = torch.get_rng_state()
    first, again = (attack("pgd", model, images, labels, eps=0.1, steps=3) for _ in range(2))
    assert first.equal(again)
    assert not first.equal(attack("pgd", model, images, labels, eps=0.1, steps=3, seed=1))
    assert torch.get_rng_state().equal(state)


def test_an_unknown_attack_is_named():
    with pytest.raises(InputError, match="there is no attack 'nuke'; expected one of fgsm, pgd"):
        attack("nuke", Fixed(), torch.rand(1, 3), torch.tensor([0]), eps=0.1)


def test_the_paired_interval_is_students():
    found = paired([0.9, 0.8, 0.85], [0.8, 0.75, 0.7])
    differences = torch.tensor([0.1, 0.05, 0.15], dtype=torch.float64)
    assert found.mean == pytest.approx(0.1)
    assert found.deviation == pytest.approx(differences.std().item())
    assert found.high - found.mean == pytest.approx(4.302652729911275 * found.deviation / math.sqrt(3))  # t, 2 degrees
    assert found.verdict() == "within noise"
    assert paired([0.9, 0.8, 0.7], [0.5, 0.4, 0.31]).verdict() == "better"
    assert paired([0.1, 0.2, 0.3], [0.5, 0.6, 0.71]).verdict() == "worse"
    assert paired([0.9], [0.1]).verdict() == "one seed: no telling"
    for same in ([0.5, 0.5], [0.75, 0.75]):  # equal differences have no deviation to judge by
        assert paired(same, [0.5, 0.5]).verdict() == "within noise"


def test_percent():
    assert percent([0.5]) == "50.0"
    assert percent([0.5, 0.7]) == "60.0 ± 14.1"
