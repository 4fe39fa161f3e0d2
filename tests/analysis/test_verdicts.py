"""Intervals from numbers per example, and verdicts from intervals."""

import numpy as np
import pytest

from principal_attention.analysis.bootstrap import RESAMPLES, Sums, beyond_a_population, example_counts, intervals
from principal_attention.analysis.measure import measure
from principal_attention.analysis.summary import Part, Summary
from principal_attention.analysis.verdicts import heads_that_clear, judge


def records(heads, *, examples=12, seed=0):
    """Records of heads whose numbers vary between examples."""
    summary = Summary(seed)
    for start in range(0, examples, 3):
        numbers = list(range(start, start + 3))
        part = Part(numbers, {}, {})
        part.put(measure(heads(start), examples=numbers), range(3), 0, 0)
        summary.add([part])
    return summary.records("layer", "made")


@pytest.fixture
def layer(heads):
    return lambda kind: records(lambda start: heads(kind, seed=start))


def test_the_answer_follows_the_layer(layer):
    answers = {kind: {v.claim: v.answer for v in judge(layer(kind))} for kind in ("exact", "half", "random")}
    assert set(answers["exact"].values()) == {"holds"}
    assert set(answers["random"].values()) == {"fails"}
    half = answers["half"]
    assert half["they span the leading principal axes"] == "in part"
    assert half["the values' coefficients are eigenvectors of the centred Gram matrix"] == "in part"
    assert "holds" not in [answer for claim, answer in half.items() if "J_proj" not in claim]


def test_a_head_clears_only_where_it_clears_every_null(layer):
    found = layer("half")
    assert heads_that_clear(found, "overlap") == [True, True]
    for each in found:
        if each["metric"] == "overlap" and each["null"] == "shuffled" and each["head"] == 1:
            each |= {"difference_low": -0.1}
    assert heads_that_clear(found, "overlap") == [True, False]
    assert heads_that_clear(found, "lambda_max") is None


def test_random_values_do_not_clear_the_null_they_are(layer):
    """Heads that differ from the null model by noise only: about one in forty clears it."""
    assert heads_that_clear(layer("random"), "overlap") == [False, False]


def test_an_interval_is_that_of_a_mean():
    """For 200 Gaussian numbers the percentile interval is the normal one, within 5% (1000 resamples)."""
    values = np.random.default_rng(0).normal(3, 2, (200, 1))
    sums = Sums(1)
    for start in range(0, 200, 50):
        counts = example_counts(range(start, start + 50), 0)
        sums.add(counts @ values[start : start + 50], counts.sum(-1, keepdims=True))
    ((value, low, high),) = intervals(sums.means())
    assert value == pytest.approx(values.mean())
    assert sums.n == 200
    half = 1.96 * values.std() / np.sqrt(200)
    assert low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_differences_are_paired_by_example():
    """Two correlated numbers differ by a constant, although each varies."""
    values = np.random.default_rng(0).normal(0, 5, (50, 1))
    counts = example_counts(range(50), 0)
    ours, null = Sums(1), Sums(1)
    weight = counts.sum(-1, keepdims=True)
    ours.add(counts @ (values + 0.25), weight)
    null.add(counts @ values, weight)
    assert intervals(ours.means() - null.means())[0] == pytest.approx((0.25, 0.25, 0.25))


def test_counts_depend_on_the_example_and_the_seed_alone():
    assert np.array_equal(example_counts([4, 7], 0)[:, 1:], example_counts([7], 0))
    assert not np.array_equal(example_counts([7], 1), example_counts([7], 0))
    assert example_counts([7], 0).shape == (RESAMPLES + 1, 1)
    assert example_counts(range(400), 0)[1:].mean() == pytest.approx(1, abs=0.01)  # 400,000 draws


def test_few_examples_are_no_ground_for_an_answer(heads):
    found = records(lambda start: heads("exact", seed=start), examples=9)
    assert {v.answer for v in judge(found) if "J_proj" not in v.claim} == {"not asked"}


def test_a_saturated_measure_needs_more_than_a_small_gap(layer):
    """Values near 1 that clear null models near 1 are not sufficient."""
    found = layer("half")
    for each in found:
        if each["metric"] == "explained_share":
            each |= {"value": 0.999 if each["null"] == "none" else 0.99895, "difference_low": 1e-6}
    answers = {v.claim: v.answer for v in judge(found)}
    assert answers["the outputs are the projections, up to a linear map"] == "fails"


def test_a_head_of_a_population_is_not_beyond_it():
    """Heads that differ only by their initialisation clear in 5% of the cases, counting both sides."""
    random = np.random.default_rng(0)
    clear = 0
    for _ in range(400):
        own, others = random.normal(0, 1, (1, 1)), random.normal(0, 1, (1, 9))
        noise = random.normal(0, 0.1, (RESAMPLES + 1, 10))  # of the examples
        ((_, low, high),) = beyond_a_population(own + noise[:, :1], others + noise[:, 1:])
        clear += low > 0 or high < 0
    assert 0.02 < clear / 400 < 0.09  # 5% ± 3.7 standard deviations


def test_one_head_alone_is_no_population():
    ((value, low, high),) = beyond_a_population(np.ones((5, 1)), np.zeros((5, 1)))
    assert (value, low, high) == (1, -np.inf, np.inf)
