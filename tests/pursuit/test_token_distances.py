"""Token pursuit as functions: the ellipsoid, its invariances, planted outliers, and gradients."""

import math

import pytest
import torch

import principal_attention as pa
from principal_attention import InputError, NonFiniteError
from principal_attention.pursuit.tokens import (
    Moments,
    TokenStatistics,
    counted_tokens,
    excess,
    fit_tokens,
    own_distances,
    own_threshold,
    relative_distances,
    sequence_median,
    sparse_rows,
    token_distances,
    token_rows,
    whitening,
)

B, N, C = 40, 30, 6


@pytest.fixture
def clean():
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(C, C, dtype=torch.float64, generator=generator)
    return torch.randn(B, N, C, dtype=torch.float64, generator=generator) @ mixing + 3.0


def everyone(x):
    return torch.ones(x.shape[:-1], dtype=torch.bool)


def ratios(tokens, found):
    d = token_distances(tokens, found.whiten, found.shift)
    return relative_distances(d, everyone(tokens), found.median)


def pa_mean(whiten, shift):
    return TokenStatistics(whiten, shift, torch.ones(()), torch.ones(())).mean


def test_distances_are_those_of_the_definition(clean):
    found = fit_tokens([clean])
    flat = clean.flatten(0, 1)
    covariance = torch.cov(flat.T)
    ridge = 1e-5 * covariance.trace() / C * torch.eye(C, dtype=torch.float64)
    centred = flat - flat.mean(0)
    squares = (centred @ torch.linalg.inv(covariance + ridge) * centred).sum(-1)
    d = token_distances(clean, found.whiten, found.shift)
    torch.testing.assert_close(d.flatten().square(), squares)
    torch.testing.assert_close(found.median, squares.sqrt().median())
    r = ratios(clean, found)
    assert (r > found.threshold).double().mean() == pytest.approx(0.001, abs=1 / (B * N))  # the quantile, by a rank


def test_a_stream_has_the_moments_of_all_its_tokens(clean):
    moments = Moments()
    for part in (clean[:1], clean[1:7], clean[7:7], clean[7:]):
        moments.add(part.float().flatten(0, 1))
    whiten, shift = moments.ellipsoid()
    flat = clean.float().double().flatten(0, 1)
    torch.testing.assert_close(torch.linalg.solve(whiten, -shift), flat.mean(0))
    torch.testing.assert_close(pa_mean(whiten, shift), flat.mean(0))
    torch.testing.assert_close(whiten, whitening(torch.cov(flat.T), 1e-5))
    assert moments.count == B * N


def test_a_linear_map_of_the_keys_changes_nothing(clean):
    """Mahalanobis distances do not depend on the basis; up to the ridge, 1e-5 of the mean variance."""
    generator = torch.Generator().manual_seed(1)
    mapped = clean @ torch.randn(C, C, dtype=torch.float64, generator=generator) - 5
    torch.testing.assert_close(ratios(clean, fit_tokens([clean])), ratios(mapped, fit_tokens([mapped])), rtol=1e-2,
                               atol=1e-3)  # fmt: skip
    rotation = torch.linalg.qr(torch.randn(C, C, dtype=torch.float64, generator=generator)).Q
    turned = 7 * clean @ rotation + 2  # the ridge turns and grows with Σ, so this is exact
    torch.testing.assert_close(ratios(clean, fit_tokens([clean])), ratios(turned, fit_tokens([turned])))


@pytest.mark.parametrize("own", [False, True])
def test_planted_gross_tokens_are_condemned_and_no_others(clean, own):
    found = fit_tokens([clean[1:]])
    tokens = clean[:1].clone()
    tokens[0, [4, 9]] += torch.tensor([30.0, -20.0, 25.0, 15.0, -30.0, 20.0], dtype=torch.float64)
    if own:
        r = relative_distances(own_distances(tokens, everyone(tokens)), everyone(tokens), None)
        threshold = own_threshold(r, everyone(tokens), 0.999)
    else:
        r, threshold = ratios(tokens, found), found.threshold
    condemned = excess(r, threshold, everyone(tokens)) > 0
    assert condemned[0].nonzero().flatten().tolist() == [4, 9]
    rows = sparse_rows(tokens, found.mean, r, threshold)
    assert (rows.abs().sum(-1) > 0).tolist() == condemned.tolist()
    kept = tokens - rows  # shrunk onto the ellipsoid r = θ, in the direction of the token
    if not own:
        d = token_distances(kept, found.whiten, found.shift)
        middle = torch.maximum(sequence_median(token_distances(tokens, found.whiten, found.shift), everyone(tokens)),
                               found.median)  # fmt: skip
        torch.testing.assert_close((d / middle)[condemned], found.threshold.expand(2))


def test_an_error_of_all_tokens_condemns_none(clean):
    """The median of the sequence grows with the error: r is that of the clean tokens, however large the error."""
    found = fit_tokens([clean])
    noise = torch.randn(clean.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    noisy = found.mean + 50 * torch.linalg.solve(found.whiten, noise.mT).mT
    share = (ratios(noisy, found) > found.threshold).double().mean()
    assert share < 0.02  # 0.1% of clean tokens; the median of 30 tokens is here never the larger clean one
    d = token_distances(noisy, found.whiten, found.shift)
    alone = relative_distances(d, everyone(noisy), found.median, causal=True)
    assert (alone > found.threshold).double().mean() > 0.9  # without the median nearly all would be


def test_prefix_and_padding_are_not_counted(clean):
    real = torch.arange(N) >= torch.tensor([[3], [0]])
    counted = counted_tokens(N, 2, real, torch.device("cpu"))
    assert counted[0].tolist() == [False] * 5 + [True] * (N - 5)
    assert counted[1].tolist() == [False] * 2 + [True] * (N - 2)
    assert counted_tokens(4, 1, None, torch.device("cpu")).tolist() == [False, True, True, True]
    tokens = clean[:2].clone()
    before = own_distances(tokens, counted)[counted]
    tokens[~counted] = 1e3
    torch.testing.assert_close(own_distances(tokens, counted)[counted], before)
    d = before.new_zeros(2, N).masked_scatter(counted, before)
    assert torch.equal(excess(d, d.new_ones(()), counted)[~counted], -torch.ones(7, dtype=torch.float64))
    nobody = torch.zeros(2, N, dtype=torch.bool)
    assert torch.equal(sequence_median(d, nobody), torch.ones(2, 1, dtype=torch.float64))


def test_heads_become_one_row_and_half_precision_is_computed_in_float32(clean):
    keys = torch.randn(2, 3, 5, 4)
    assert torch.equal(token_rows(keys)[1, 2], keys[1, :, 2].flatten())
    found = fit_tokens([clean])
    half = token_distances(clean.bfloat16(), found.whiten, found.shift)
    assert half.dtype == torch.float32
    exact = token_distances(clean, found.whiten, found.shift)
    assert (half - exact).abs().max() < 0.2  # bfloat16 has 3 digits, and keys near 10 have an error of 0.03


@pytest.mark.parametrize("own", [False, True])
def test_gradients_flow_through_distances_median_and_threshold(clean, own):
    found = fit_tokens([clean])
    tokens = (clean[:2, :9] * 1.5).requires_grad_()

    def penalty(tokens):
        counted = counted_tokens(9, 1, None, tokens.device)
        if own:
            r = relative_distances(own_distances(tokens, counted), counted, None)
            return excess(r, own_threshold(r, counted, 0.9), counted)
        d = token_distances(tokens, found.whiten, found.shift)
        return excess(relative_distances(d, counted, found.median), found.threshold, counted)

    assert torch.autograd.gradcheck(penalty, (tokens,))


def test_bad_input_is_refused(clean):
    for options, says in (
        (dict(quantile=1.0), "quantile is 1.0"),
        (dict(quantile="high"), "quantile is 'high'"),
        (dict(strength=-1), "strength is -1"),
        (dict(strength=math.inf), "strength is inf"),
        (dict(strength=math.nan), "strength is nan"),
        (dict(prefix=-1), "prefix is -1"),
        (dict(prefix=1.5), "prefix is 1.5"),
    ):
        with pytest.raises(InputError, match=says):
            pa.TokenPursuit(**options)
    with pytest.raises(InputError, match="calibrate has 6 tokens, and the keys have 6 dimensions"):
        fit_tokens([clean[:1, :6]])
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        fit_tokens([clean / 0])
    with pytest.raises(InputError, match="causal model needs statistics"):
        relative_distances(clean[..., 0], everyone(clean), None, causal=True)
    equal = torch.ones(1, 5, 3)  # tokens without any spread have no distance from each other
    assert torch.equal(own_distances(equal, everyone(equal)), torch.zeros(1, 5))
