"""`RobustPCA`: scikit-learn's estimator checks, and recovery of a subspace."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from principal_attention import InputError, RobustPCA, principal_component_pursuit


@pytest.mark.filterwarnings("ignore::principal_attention.ConvergenceWarning")  # random data of full rank
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([RobustPCA()])
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def contaminated(seed=0):
    random = np.random.default_rng(seed)
    clean = random.normal(size=(200, 3)) @ random.normal(size=(3, 150)) + 5
    dirty = clean + (random.random(clean.shape) < 0.05) * 40 * random.normal(size=clean.shape)
    return clean, dirty


def test_the_axes_are_those_of_the_clean_data_where_pca_loses_them():
    clean, dirty = contaminated()
    truth = PCA(3).fit(clean).components_
    # Cosines of the principal angles between the two subspaces.
    robust = np.linalg.svd(RobustPCA(3).fit(dirty).components_ @ truth.T)[1]
    plain = np.linalg.svd(PCA(3).fit(dirty).components_ @ truth.T)[1]
    assert robust.min() > 1 - 1e-6
    assert plain.min() < 0.9


def test_without_errors_it_is_pca():
    clean, _ = contaminated()
    ours, theirs = RobustPCA().fit(clean), PCA(3).fit(clean)
    assert ours.n_components_ == 3
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(ours.transform(clean), theirs.transform(clean), atol=1e-5)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(clean)), clean, atol=1e-5)


def test_it_is_the_pursuit_and_names_its_features():
    _, dirty = contaminated()
    model = RobustPCA(2).fit(dirty)
    result = principal_component_pursuit(torch.from_numpy(dirty))
    np.testing.assert_array_equal(model.low_rank_, result.low_rank.numpy())
    np.testing.assert_array_equal(model.sparse_, result.sparse.numpy())
    assert model.n_iter_ == int(result.iterations)
    assert model.converged_
    assert list(model.get_feature_names_out()) == ["robustpca0", "robustpca1"]


@pytest.mark.parametrize("wrong", [0, 151])
def test_a_wrong_number_of_components_is_named(wrong):
    with pytest.raises(InputError, match=f"n_components is {wrong}; expected 1 to 150"):
        RobustPCA(wrong).fit(contaminated()[1])
