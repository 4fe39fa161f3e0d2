"""`RobustPCA`: Principal Component Pursuit and Outlier Pursuit as a scikit-learn estimator."""

from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_is_fitted, validate_data

from .errors import InputError
from .pcp import outlier_pursuit, principal_component_pursuit

PURSUITS = {"entries": principal_component_pursuit, "rows": outlier_pursuit}


class RobustPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """PCA of the low-rank part of X, after a convex pursuit has removed gross errors.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of principal axes to keep. None keeps all axes of the low-rank part.
    kind : {"entries", "rows"}, default="entries"
        Errors to remove: of single entries, by `principal_component_pursuit`, or of whole rows (outlying samples), by
        `outlier_pursuit`.
    lam, mu, tol, max_iter
        Parameters of the pursuit.

    Attributes
    ----------
    low_rank_, sparse_ : ndarray of shape (n_samples, n_features)
        Low-rank and sparse part of the training data. With kind="rows" the outliers are the rows of `sparse_` that
        are not zero.
    components_ : ndarray of shape (n_components_, n_features)
        Principal axes of `low_rank_`, by decreasing variance, with scikit-learn's signs.
    mean_ : ndarray of shape (n_features,)
        Mean of `low_rank_`.
    singular_values_, explained_variance_ : ndarray of shape (n_components_,)
        Singular values of the centred `low_rank_`, and the variance along each axis.
    n_components_, n_iter_ : int
        Number of axes kept, and iterations of the pursuit.
    converged_ : bool
        Whether the pursuit reached its tolerance.

    Notes
    -----
    `transform` projects new rows without removing errors from them.
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kind: Literal["entries", "rows"] = "entries",
        lam: float | None = None,
        mu: float | None = None,
        tol: float = 1e-7,
        max_iter: int = 1000,
    ):
        self.n_components = n_components
        self.kind = kind
        self.lam = lam
        self.mu = mu
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None) -> "RobustPCA":
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        if self.kind not in PURSUITS:
            raise InputError(f"kind is {self.kind!r}; expected {' or '.join(map(repr, PURSUITS))}")
        result = PURSUITS[self.kind](
            torch.from_numpy(np.array(X)), lam=self.lam, mu=self.mu, tol=self.tol, max_iter=self.max_iter
        )
        self.low_rank_, self.sparse_ = result.low_rank.numpy(), result.sparse.numpy()
        self.n_iter_, self.converged_ = max(1, int(result.iterations)), bool(result.converged)
        self.mean_ = self.low_rank_.mean(0)
        u, s, vt = np.linalg.svd(self.low_rank_ - self.mean_, full_matrices=False)
        u, vt = svd_flip(u, vt, u_based_decision=False)
        rank = int((s > s[0] * max(self.tol, max(X.shape) * np.finfo(s.dtype).eps)).sum())
        kept = max(rank, 1) if self.n_components is None else self.n_components
        if not isinstance(kept, int | np.integer) or not 1 <= kept <= len(s):
            raise InputError(f"n_components is {kept}; expected 1 to {len(s)} for {X.shape[0]}×{X.shape[1]} data")
        self.n_components_, self.components_, self.singular_values_ = kept, vt[:kept], s[:kept]
        self.explained_variance_ = self.singular_values_**2 / (X.shape[0] - 1)
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray((X - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(X) @ self.components_ + self.mean_
