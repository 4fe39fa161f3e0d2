"""Accuracy, comparisons and noise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from principal_attention.errors import InputError
from principal_attention.evaluation.compare import on_same_examples, paired, percent, verdict
from principal_attention.tasks.classes import Accuracy, count
from principal_attention.vision.pixels import OnPixels, gaussian_noise


class Fixed(nn.Module):
    """Model that returns its inputs as logits."""

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
    with pytest.raises(InputError, match="no examples to measure"):
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


def test_the_paired_interval_is_students():
    found = paired([0.9, 0.8, 0.85], [0.8, 0.75, 0.7])
    differences = torch.tensor([0.1, 0.05, 0.15], dtype=torch.float64)
    assert found.mean == pytest.approx(0.1)
    assert found.deviation == pytest.approx(differences.std().item())
    assert found.high - found.mean == pytest.approx(4.302652729911275 * found.deviation / math.sqrt(3))  # t, 2 degrees
    assert found.verdict() == "within noise"
    assert paired([0.9, 0.8, 0.7], [0.5, 0.4, 0.31]).verdict() == "better"
    assert paired([0.1, 0.2, 0.3], [0.5, 0.6, 0.71]).verdict() == "worse"
    assert paired([0.9], [0.1]).verdict() == "one seed: unknown"
    for same in ([0.5, 0.5], [0.75, 0.75]):  # equal differences have no deviation
        assert paired(same, [0.5, 0.5]).verdict() == "within noise"


def test_percent():
    assert percent([0.5]) == "50.0"
    assert percent([0.5, 0.7]) == "60.0 ± 14.1"


def test_two_models_on_the_same_images():
    """Only one model is right on 12 images, 10 to 2: McNemar's exact p is 2·P(X ≤ 2) for 12 coins, 158/4096."""
    ours = [True] * 10 + [False] * 2 + [True] * 80 + [False] * 8
    theirs = [False] * 10 + [True] * 2 + [True] * 80 + [False] * 8
    found = on_same_examples(ours, theirs)
    assert (found.n, found.only_ours, found.only_theirs) == (100, 10, 2)
    assert found.difference == pytest.approx(0.08)
    assert found.p == pytest.approx(158 / 4096)
    assert verdict(found.difference, found.p) == "better"
    # the deviation of the mean of values in {1, −1, 0}; resampling 100 images adds a grid of 0.01
    reach = 1.96 * math.sqrt((0.12 - 0.08**2) / 100)
    assert found.low == pytest.approx(0.08 - reach, abs=0.012)
    assert found.high == pytest.approx(0.08 + reach, abs=0.012)
    turned, same = on_same_examples(theirs, ours), on_same_examples(ours, ours)
    assert verdict(turned.difference, turned.p) == "worse"
    assert (same.p, same.low, same.high, verdict(same.difference, same.p)) == (1.0, 0.0, 0.0, "within noise")


def test_two_models_with_scores_of_the_same_examples():
    """Compared with Student's paired t, for 200 differences with mean 0.3 and deviation 1."""
    random = np.random.default_rng(0)
    theirs = random.normal(size=200)
    ours = theirs + 0.3 + random.normal(size=200)
    found = on_same_examples(ours, theirs)
    expected = stats.ttest_rel(ours, theirs)
    low, high = expected.confidence_interval()
    assert found.difference == pytest.approx((ours - theirs).mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)  # a tenth of the interval's half
    assert found.p == pytest.approx(expected.pvalue, abs=2e-3)
    assert found.only_ours is None
    assert on_same_examples(ours, ours).p == 1.0
