"""Every measure distinguishes kernel PCA from random values and agrees with an independent computation."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from sklearn.decomposition import KernelPCA as TheirKernelPCA

from principal_attention.analysis.axes import Axes
from principal_attention.analysis.measure import measure, stand_in
from principal_attention.analysis.printed import authors_projection_loss, pair_differences
from principal_attention.analysis.similarity import Reference
from principal_attention.analysis.summary import TOWARDS
from principal_attention.analysis.values import coefficients, orthonormal
from principal_attention.errors import InputError, NonFiniteError

EXAMPLES = [0, 1, 2]


def numbers(heads, **options):
    return measure(heads, examples=EXAMPLES, **options).numbers


def gram(keys, scale):
    """The centred Gram matrix, written out."""
    kernel = np.exp(keys @ keys.T * scale)
    g = kernel.sum(1)
    kernel = kernel / np.outer(g, g)
    centre = np.eye(len(keys)) - 1 / len(keys)
    return centre @ kernel @ centre, g


def test_values_of_theorem_1_are_recognised_by_every_measure(heads):
    found = numbers(heads("exact"))["none"]
    for metric, towards in TOWARDS.items():
        # angles come from arccos near 1, which turns 1e-16 into 1e-8 radians, 1e-6 degrees
        exact, tolerance = (1.0 if towards > 0 else 0.0), (1e-4 if metric.startswith("angle") else 1e-6)
        assert torch.allclose(found[metric], torch.full_like(found[metric], exact), atol=tolerance), metric
    for metric in ("j_proj", "residual", "residual_best"):
        assert torch.allclose(found[metric], found["j_star"], rtol=1e-9), metric


def test_random_values_are_not_and_half_of_each_lie_between(heads):
    exact, half, random = (numbers(heads(kind))["none"] for kind in ("exact", "half", "random"))
    for metric, towards in TOWARDS.items():
        if metric in ("infeasible_share", "violation_share", "angle_smallest"):
            continue  # the first is about the mean alone; half the columns suffice for the others
        a, b, c = (towards * each[metric].mean() for each in (exact, half, random))
        assert a > b + 0.02 * abs(b) > c, (metric, a, b, c)


def test_a_right_factor_of_v_changes_nothing_that_is_said_of_its_span(heads, make):
    whole = heads("half")
    (factor,) = make(whole.values.shape[-1], whole.values.shape[-1], count=1, seed=3)
    ours, theirs = (numbers(h)["none"] for h in (whole, replace(whole, values=whole.values @ factor)))
    for metric in ("overlap", "overlap_4", "subspace_residual", "explained_share", "residual_best"):
        assert torch.allclose(ours[metric], theirs[metric], rtol=1e-8), metric
    assert torch.allclose(ours["angle_median"], theirs["angle_median"], atol=1e-4)  # arccos near 1
    # of single columns another basis has others: it must differ by more than 1%, far above rounding
    assert not torch.allclose(ours["rayleigh_residual"], theirs["rayleigh_residual"], rtol=1e-2)


def test_spectrum_and_rayleigh_residual_against_the_matrix_itself(heads):
    whole = heads("random")
    found = numbers(whole)["none"]
    keys, values = whole.keys[1, 0].numpy(), whole.values[1, 0].numpy()
    matrix, g = gram(keys, whole.scale)
    eigenvalues = np.linalg.eigvalsh(matrix)[::-1]
    assert np.isclose(found["lambda_max"][1, 0], eigenvalues[0])
    assert np.isclose(found["lambda_median"][1, 0], np.sort(eigenvalues)[(len(keys) - 1) // 2])
    assert np.isclose(found["trace"][1, 0], np.trace(matrix))
    assert np.isclose(found["lambda_mean"][1, 0], np.trace(matrix) / len(keys))
    assert found["trace"][1, 0] <= found["trace_bound"][1, 0] <= len(keys)
    shares = eigenvalues[eigenvalues > 1e-18] / np.trace(matrix)
    assert np.isclose(found["effective_rank"][1, 0], np.exp(-(shares * np.log(shares)).sum()))
    theirs = TheirKernelPCA(5, kernel="precomputed").fit(np.exp(keys @ keys.T * whole.scale) / np.outer(g, g))
    assert np.allclose(theirs.eigenvalues_[0], found["lambda_max"][1, 0])
    columns = (np.eye(len(keys)) - 1 / len(keys)) @ (g[:, None] * values)
    residuals = []
    for column in columns.T:
        image = matrix @ column
        rho = column @ image / (column @ column)
        residuals.append(np.linalg.norm(image - rho * column) / np.linalg.norm(image))
    assert np.isclose(found["rayleigh_residual"][1, 0], np.mean(residuals))
    lost = 1 - (columns**2).sum() / ((g[:, None] * values) ** 2).sum()
    assert np.isclose(found["infeasible_share"][1, 0], lost)


def test_principal_angles_against_scipy(heads):
    whole = heads("half")
    found, axes = numbers(whole)["none"], Axes(whole.queries, whole.keys, whole.values.shape[-1], whole.scale)
    columns, _ = coefficients(axes, whole.values)
    angles = np.sort(subspace_angles(columns[2, 1].numpy(), axes.spectrum.vectors[2, 1, :, : axes.count].numpy()))
    assert np.isclose(found["overlap"][2, 1], np.mean(np.cos(angles) ** 2))
    assert np.isclose(found["angle_smallest"][2, 1], np.degrees(angles[0]), atol=1e-4)
    assert np.isclose(found["angle_median"][2, 1], np.degrees(angles[(len(angles) - 1) // 2]), atol=1e-4)


def test_the_best_linear_map_of_the_outputs_against_least_squares(heads):
    whole = heads("random")
    found, axes = numbers(whole)["none"], Axes(whole.queries, whole.keys, whole.values.shape[-1], whole.scale)
    outputs, wanted = whole.outputs[0, 1].numpy(), axes.outputs[0, 1].numpy()
    factor = np.linalg.lstsq(outputs, wanted, rcond=None)[0]
    feature = axes.log_feature[0, 1].exp().mean().item()
    # ‖φ − Σ h_d u_d‖² = ‖φ‖² − 2 h·h* + ‖h‖² for any h
    best = outputs @ factor
    residual = feature - 2 * (best * wanted).sum(1).mean() + (best**2).sum(1).mean()
    assert np.isclose(found["residual_best"][0, 1], residual)
    plain = feature - 2 * (outputs * wanted).sum(1).mean() + (outputs**2).sum(1).mean()
    assert np.isclose(found["residual"][0, 1], plain)
    assert found["residual_best"][0, 1] <= found["residual"][0, 1]


def test_projection_loss_and_its_terms(heads):
    whole = heads("random", size=0.7)
    found = numbers(whole)["none"]
    q, k, out = (t[2, 0].numpy() for t in (whole.queries, whole.keys, whole.outputs))
    feature = np.exp((q * q).sum(1) * whole.scale) / np.exp(q @ k.T * whole.scale).sum(1) ** 2
    size = (out**2).sum(1)
    assert np.isclose(found["phi_norm"][2, 0], feature.mean())
    assert np.isclose(found["h_norm"][2, 0], size.mean())
    assert np.isclose(found["j_proj"][2, 0], (feature - size).mean())
    assert np.isclose(found["violation_share"][2, 0], (size > feature).mean())


def test_the_authors_projection_loss_mixes_scaled_and_unscaled_logits(make):
    q, k, v = make(1, 1, 9, 5, count=3)
    found = authors_projection_loss(q, k, v, 5**-0.5).item()
    a, b = ((t[0, 0].numpy() - t[0, 0].numpy().mean(1, keepdims=True)) / t[0, 0].numpy().std(1, ddof=1, keepdims=True)
            for t in (q, k))  # fmt: skip
    weights = np.exp(a @ b.T * 5**-0.5)
    weights /= weights.sum(1, keepdims=True)
    feature = np.exp((a * a).sum(1)) / (np.exp(a @ b[0]) / weights[:, 0]) ** 2
    assert np.isclose(found, (feature - ((weights @ v[0, 0].numpy()) ** 2).sum(1)).mean())


def test_differences_of_pairs_against_all_of_them(make):
    (x,) = make(2, 11, 3, count=1)
    mean, deviation = pair_differences(x)
    pairs = torch.stack([(x[:, i] - x[:, j]).abs() for i, j in itertools.combinations(range(11), 2)])
    assert torch.allclose(mean, pairs.mean(0))
    assert torch.allclose(deviation, pairs.std(0, correction=0))


def test_gamma_is_the_quotient_of_the_paper(heads):
    whole = heads("random")
    found = measure(whole, examples=EXAMPLES)
    keys, values = whole.keys[0, 0].numpy(), whole.values[0, 0].numpy()
    matrix, g = gram(keys, whole.scale)
    columns = (np.eye(len(keys)) - 1 / len(keys)) @ (g[:, None] * values)
    gamma = matrix @ columns / (len(keys) * columns)
    pairs = [np.abs(gamma[i] - gamma[j]) for i, j in itertools.combinations(range(len(keys)), 2)]
    assert np.allclose(found.curves["none"]["gamma_mean"][0, 0], np.mean(pairs, 0), rtol=1e-6)
    # medians over 4 N = 240 of the pairs and over all of them: a median of 240 draws is off by some 8% a component, the
    # mean over 12 components by 2.4%, so 10% is four standard errors
    assert np.isclose(found.numbers["none"]["gamma_median"][0, 0], np.median(pairs, 0).mean(), rtol=0.1)


def test_gamma_is_compared_across_the_whole_sequence(heads):
    """Also if the second half of the columns repeats the first."""
    whole = heads("random")
    twice = {name: torch.cat([getattr(whole, name)[..., :30, :]] * 2, -2) for name in ("queries", "keys", "values")}
    once, again = numbers(whole)["none"], numbers(replace(whole, **twice))["none"]
    assert (again["gamma_relative"] > 0.3 * once["gamma_relative"]).all()


def test_similarities_of_the_re_examination(make):
    ours, theirs = make(1, 6, 4)
    reference = Reference(theirs)
    found = {metric: value.item() for metric, value in reference.numbers(ours).items()}
    a, b = (t[0].numpy() for t in (ours, theirs))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b)]
    cosines = unit[0] @ unit[1].T
    best = max(np.mean([cosines[i, j] for i, j in enumerate(order)]) for order in itertools.permutations(range(6)))
    assert np.isclose(found["matched_cosine"], best)
    centre = np.eye(6) - 1 / 6

    def cka(x, y):
        x, y = centre @ x @ centre, centre @ y @ centre
        return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())

    def radial(x):
        distance = ((x[:, None] - x[None]) ** 2).sum(-1)
        apart = np.sort(distance[np.triu_indices(6, 1)])
        return np.exp(-0.5 * distance / apart[(len(apart) - 1) // 2])

    assert np.isclose(found["linear_cka"], cka(a @ a.T, b @ b.T))
    assert np.isclose(found["kernel_cka"], cka(radial(a), radial(b)))


def test_matching_rows_cannot_tell_whose_they_are(heads):
    """The matched cosine is the same for shuffled values, so this null model is not used."""
    whole = heads("random")
    axes = Axes(whole.queries, whole.keys, whole.values.shape[-1], whole.scale)
    mixed = stand_in("shuffled", whole.values, 0, EXAMPLES, 0)
    ours, theirs = (Reference(axes.values).numbers(v)["matched_cosine"] for v in (whole.values, mixed))
    assert torch.allclose(ours, theirs)
    assert "matched_cosine" not in numbers(whole)["shuffled"]


def test_nulls_depend_on_the_example_alone(heads):
    whole = heads("random")
    for null in ("random", "shuffled"):
        together = stand_in(null, whole.values, 3, [7, 8, 9], 0)
        alone = stand_in(null, whole.values[1:2], 3, [8], 0)
        assert torch.equal(together[1:2], alone)
        assert not torch.equal(stand_in(null, whole.values[1:2], 4, [8], 0), alone)
        assert not torch.equal(stand_in(null, whole.values[1:2], 3, [8], 1), alone)
    shuffled = stand_in("shuffled", whole.values, 3, [7, 8, 9], 0)
    assert torch.equal(shuffled.sort(-2).values, whole.values.sort(-2).values)


@pytest.mark.parametrize("size", [1e-8, 1.0, 8.0, 30.0])
def test_numbers_stay_finite_whatever_the_size_of_the_keys(heads, size):
    """With entries of size 30 the kernel spans hundreds of orders of magnitude."""
    for null, found in numbers(heads("random", size=size)).items():
        for metric, value in found.items():
            if metric not in ("phi_norm", "j_proj", "j_star", "residual", "residual_best", "j_proj_authors"):
                assert torch.isfinite(value).all(), (null, metric)  # ‖φ(q)‖² itself leaves float64 there


def test_keys_that_are_all_alike_have_no_axes(heads):
    whole = heads("random")
    found = numbers(replace(whole, keys=torch.ones_like(whole.keys)))["none"]
    assert (found["overlap"] == 0).all()
    assert (found["explained_share"] == 0).all()
    assert all(torch.isfinite(value).all() for value in found.values())


def test_a_basis_spans_what_the_columns_span(make):
    """For any position of linearly dependent or zero columns."""
    (columns,) = make(20, 4, count=1)
    zero = torch.zeros(20, 1, dtype=columns.dtype)
    a, b, c, d = columns.split(1, -1)
    for given in ([a, 2 * a, b, c, d, zero], [zero, a, b, a + b, c, d], [a, b, c, d, a, zero]):
        basis = orthonormal(torch.cat(given, -1))
        assert torch.linalg.matrix_rank(basis) == 4
        inside = basis @ (basis.mT @ columns)
        assert torch.allclose(inside, columns, atol=1e-12)
    assert torch.allclose(orthonormal(columns).mT @ orthonormal(columns), torch.eye(4, dtype=columns.dtype))


def test_a_column_of_zeros_changes_nothing_wherever_it_is(heads):
    whole = heads("exact")
    first, last = whole.values.clone(), whole.values.clone()
    first[..., 0] = 0
    last[..., :-1], last[..., -1] = whole.values[..., 1:], 0
    ours, theirs = (numbers(replace(whole, values=v))["none"] for v in (first, last))
    for metric in ("overlap", "overlap_4", "subspace_residual", "rayleigh_residual", "explained_share"):
        assert torch.allclose(ours[metric], theirs[metric], atol=1e-9), metric


def test_too_short_a_sequence_and_keys_that_are_not_numbers_are_refused(heads):
    whole = heads("random")
    short = replace(whole, **{name: getattr(whole, name)[..., :13, :] for name in ("queries", "keys", "values")})
    with pytest.raises(InputError, match="13 tokens and the heads' values 12 columns"):
        measure(short, examples=EXAMPLES)
    keys = whole.keys.clone()
    keys[0, 0, 0, 0] = torch.nan
    with pytest.raises(NonFiniteError, match="layer 0"):
        measure(replace(whole, keys=keys), examples=EXAMPLES)


def test_a_row_of_a_causal_head_is_a_head_of_its_own(heads):
    whole = replace(heads("random"), causal=True)
    mask = torch.ones(60, 60, dtype=torch.bool).tril()
    out = (whole.queries @ whole.keys.mT * whole.scale).masked_fill(~mask, -torch.inf).softmax(-1) @ whole.values
    for length, row in replace(whole, outputs=out).prefixes([20, 60]):
        attended = (row.queries @ row.keys.mT * row.scale).softmax(-1) @ row.values
        assert torch.allclose(attended, row.outputs)
        found = numbers(row)["none"]
        assert torch.allclose(found["h_norm"], out[:, :, length - 1].square().sum(-1))
        assert "explained_share" not in found  # one row is explained by any one column
    exact = heads("exact")
    ((_, last),) = replace(exact, causal=True).prefixes([60])
    assert torch.allclose(numbers(last)["none"]["overlap"], torch.ones(3, 2, dtype=torch.float64))
