"""Targets of a program: measured sums of counts with weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when first used


@dataclass(frozen=True)
class Fit:
    """Measured sums of n counts: matrix (q, n), values (q,), weights (q,) in proportion to 1 / variance."""

    matrix: scipy.sparse.csr_array
    values: np.ndarray
    weights: np.ndarray

    def objective(self, x: np.ndarray) -> float:
        """Return the weighted sum of squared deviations."""
        return float(self.weights @ (self.matrix @ x - self.values) ** 2)

    def around(self, origin: np.ndarray) -> Fit:
        """Return the fit of the change of an origin (n,): what is measured beyond its sums."""
        return Fit(self.matrix, self.values - self.matrix @ origin, self.weights)

    def relative(self) -> Fit:
        """Return the fit with least weight 1: solvers' tolerances are absolute, and a common factor changes no optimum.

        Examples
        --------
        >>> Fit(scipy.sparse.csr_array(np.eye(2)), np.zeros(2), np.array([1e17, 4e17])).relative().weights
        array([1., 4.])
        """
        return Fit(self.matrix, self.values, self.weights / self.weights.min(initial=np.inf))

    def shuffled(self, order: np.ndarray, rng: np.random.Generator) -> Fit:
        """Return the fit in another order: cell `order[i]` comes i-th, and measured sums come at random."""
        rows = rng.permutation(self.values.size)
        return Fit(self.matrix[rows][:, order], self.values[rows], self.weights[rows])
