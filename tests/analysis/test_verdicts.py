"""Numbers of examples become intervals, intervals become answers; the answers follow the layer."""

import numpy as np
import pytest

from principal_attention.analysis.bootstrap import RESAMPLES, Sums, example_counts
from principal_attention.analysis.measure import measure
from principal_attention.analysis.summary import Part, Summary
from principal_attention.analysis.verdicts import heads_that_clear, judge


def records(heads, *, examples=12, seed=0):
    """Of heads that see other tokens in each example."""
    summary = Summary(seed)
    for start in range(0, examples, 3):
        numbers = list(range(start, start + 3))
        part = Part(numbers, {}, {})
        part.put(measure(heads(start), examples=numbers), slice(0, 3), 0, 0, "none")
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
    """They differ from another draw by noise alone: about one head in forty would clear."""
    assert heads_that_clear(layer("random"), "overlap") == [False, False]


def test_an_interval_is_that_of_a_mean():
    """On 200 Gaussian numbers the percentile interval is the normal one but for drawing (1000 resamples: 5%)."""
    values = np.random.default_rng(0).normal(3, 2, (200, 1))
    sums = Sums(1)
    for start in range(0, 200, 50):
        examples = range(start, start + 50)
        sums.add(example_counts(examples, 0), values[start : start + 50])
    ((value, low, high),) = sums.intervals()
    assert value == pytest.approx(values.mean())
    assert sums.n == 200
    half = 1.96 * values.std() / np.sqrt(200)
    assert low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_differences_are_paired_by_example():
    """Two numbers that move together differ by a constant, however much they vary."""
    values = np.random.default_rng(0).normal(0, 5, (50, 1))
    counts = example_counts(range(50), 0)
    ours, null = Sums(1), Sums(1)
    ours.add(counts, values + 0.25)
    null.add(counts, values)
    assert null.below(ours)[0] == pytest.approx((0.25, 0.25, 0.25))


def test_counts_depend_on_the_example_and_the_seed_alone():
    assert np.array_equal(example_counts([4, 7], 0)[:, 1:], example_counts([7], 0))
    assert not np.array_equal(example_counts([7], 1), example_counts([7], 0))
    assert example_counts([7], 0).shape == (RESAMPLES + 1, 1)
    assert example_counts(range(400), 0)[1:].mean() == pytest.approx(1, abs=0.01)  # 400,000 draws


def test_one_example_has_no_spread(heads):
    sums = Sums(2)
    sums.add(example_counts([3], 0), np.array([[1.0, 2.0]]))
    assert [tuple(each) for each in sums.intervals()] == [(1.0, 1.0, 1.0), (2.0, 2.0, 2.0)]
