"""Bias and variance of projections: Theorems 7 and 11 of Zhu et al."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike, NDArray

from trueup.errors import DataError, SpecError
from trueup.noise.law import Law
from trueup.theory.limits import outside_probability


def error_operator(matrix: ArrayLike, variances: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the matrix (n, n) that maps noise to the error of the projection onto `matrix @ x = b`.

    Parameters
    ----------
    matrix
        The m equalities, (m, n).
    variances
        Noise variances V, (n,), counts squared: the projection is in the metric `sum d_i^2 / V_i`.
        Ordinary least squares if None.

    Returns
    -------
    numpy.ndarray
        `I - V A' (A V A')^+ A`, (n, n); it does not depend on b, and dependent rows of A do no harm.

    Raises
    ------
    SpecError
        If a variance is negative or not finite, or the shapes do not match.

    Examples
    --------
    >>> error_operator([[1, 1]])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix  # pyright: ignore[reportAttributeAccessIssue]
    a = np.atleast_2d(np.asarray(dense, float))
    if a.ndim != 2 or not np.isfinite(a).all():
        raise SpecError(
            "the equalities are not a matrix of finite numbers",
            needed="one row of finite numbers for each equality",
        )
    v = np.ones(a.shape[1]) if variances is None else np.asarray(variances, float)
    if v.shape != a.shape[1:]:
        raise SpecError(f"{v.size} variances are given", needed=f"one for each of {a.shape[1]} counts")
    if not (np.isfinite(v) & (v >= 0)).all():
        raise SpecError("a variance is negative or not finite", needed="finite numbers of 0 or more")
    va = v[:, None] * a.T
    return np.eye(len(v)) - va @ np.linalg.pinv(a @ va) @ a


def projection_bias(
    matrix: ArrayLike, mean: ArrayLike = 0.0, variances: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return the bias (counts) of the projection onto `A x = b`, given the mean of the noise.

    Theorem 7: program (P), the projection on the solutions of `A v = b`, is unbiased. The paper proves it
    for symmetric noise by reflection. The error is `error_operator @ noise`, so it holds for all noise of mean
    zero and for weighted least squares, and noise with a `mean` passes through the same matrix.

    Parameters
    ----------
    matrix, variances
        The parameters of `error_operator`.
    mean
        Mean of the noise (counts), (n,) or one number.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Theorem 7.

    Examples
    --------
    >>> projection_bias([[1, 1, 1]]), projection_bias([[1, 1]], [2.0, 0.0])
    (array([0., 0., 0.]), array([ 1., -1.]))
    """
    operator = error_operator(matrix, variances)
    return operator @ np.broadcast_to(np.asarray(mean, float), len(operator))


def projection_covariance(
    matrix: ArrayLike, variances: ArrayLike, weights: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return the covariance (n, n), in counts squared, of the error of the projection onto `A x = b`.

    Parameters
    ----------
    matrix
        The m equalities, (m, n).
    variances
        Variances of independent noise, (n,), counts squared.
    weights
        Variances that the projection takes the noise to have; its true ones if None.

    Notes
    -----
    Dense, for problems small enough to invert; `trueup.kernel.tree.posterior_variances` and
    `trueup.kernel.histogram.least_squares.HistogramLeastSquares.margin_variances` have the same numbers in linear time.

    Examples
    --------
    >>> projection_covariance([[1, 1]], [2.0, 2.0])
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    operator = error_operator(matrix, variances if weights is None else weights)
    return (operator * np.asarray(variances, float)) @ operator.T


def nonnegative_bias_bound(law: Law, n: int, smallest: float, farthest: float) -> float:
    """Return an upper bound on every count's bias (counts) if the projection keeps counts nonnegative.

    Theorem 11: the largest bias of program (P+) is at most `C' P(noise leaves the ball of radius r_m)`.
    Inside the ball no count can fall below zero, so (P+) is (P) there and its errors cancel by symmetry.

    Parameters
    ----------
    law
        Symmetric noise on every count.
    n
        Number of counts.
    smallest
        The smallest true count r_m.
    farthest
        C', the largest distance of a count from its true value within the feasible region: with one known
        total T it is `T - r_m` (all of it in the smallest part).

    Returns
    -------
    float
        The bound. It is confidential where `smallest` is.

    Notes
    -----
    The proof needs that the Euclidean length of the noise is at most r_m. The paper replaces it by the
    larger sum of absolute values, whose distribution is known for Laplace noise; for Gaussian noise
    `outside_probability` has the Euclidean ball itself, so the bound holds for it with nothing given away.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Theorem 11.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> round(nonnegative_bias_bound(Laplace("5"), 33, 348, 790_000 - 348), 3)
    0.297
    """
    if not (smallest >= 0 and farthest >= 0):
        which = "distance" if smallest >= 0 else "smallest count"
        raise SpecError(f"the {which} is negative or not a number", needed="a number of 0 or more")
    return farthest * outside_probability(law, n, smallest)


class RegionEnds(NamedTuple):
    """Distances (counts) from the true counts to the ends of the feasible region of program (P+).

    Attributes
    ----------
    farthest
        C', the largest distance of one count from its true value within the region (counts); infinite where it has no end.
    margin
        Distance (Euclidean) from the true counts to the nearest count of zero, within the solutions of `A v = A x`: no noise
        of less than that length makes (P+) differ from (P). The paper's r_m, the smallest count, is at most that.
    """

    farthest: float
    margin: float


def region(x: ArrayLike, matrix: ArrayLike) -> RegionEnds:
    """Return the distances C' and r_m of true counts `x (n,)` within known sums `A x`.

    Both are confidential.

    Raises
    ------
    DataError
        If a count is negative or not finite.
    SpecError
        If the matrix does not fit, or a linear program is not solved.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Lemma 10 and Theorem 11.

    Examples
    --------
    >>> found = region([2, 8], [[1, 1]])
    >>> found.farthest, round(found.margin, 3)
    (8.0, 2.828)
    """
    counts, a = np.asarray(x, float), np.atleast_2d(np.asarray(matrix, float))
    if counts.ndim != 1 or not (np.isfinite(counts) & (counts >= 0)).all():
        raise DataError(
            "the counts are not a vector of numbers from 0 on", needed="finite numbers of 0 or more"
        )
    if a.shape[1] != counts.size:
        raise SpecError(
            f"the matrix has {a.shape[1]} columns", needed=f"one column for each of {counts.size} counts"
        )
    reach = np.sqrt(
        np.clip(np.diag(error_operator(a)), 0.0, None)
    )  # how far a unit of length moves each count
    moves = reach > 1e-9
    margin = float((counts[moves] / reach[moves]).min(initial=np.inf))
    return RegionEnds(
        max((_farthest(counts, a, i) for i in np.flatnonzero(moves).tolist()), default=0.0), margin
    )


def _farthest(x: np.ndarray, a: np.ndarray, i: int) -> float:
    """Return the largest change of count `i` within the feasible region, which may be infinite."""
    changes = []
    for sign in (1.0, -1.0):
        cost = np.zeros(x.size)
        cost[i] = sign
        found = scipy.optimize.linprog(cost, A_eq=a, b_eq=a @ x, bounds=(0, None), method="highs")
        if found.status == 3:
            return np.inf
        if found.status != 0:
            raise SpecError(
                "the ends of the region of possible counts were not found",
                needed="known sums within the solver's range",
            )
        changes.append(abs(float(found.x[i]) - x[i]))
    return float(max(changes))


def bias_bound(law: Law, x: ArrayLike, matrix: ArrayLike) -> float:
    """Return an upper bound on every count's bias (counts) under (P+), for equal noise on all counts.

    It is `C' P(noise outside the ball of radius r)`, with r the margin of the region in place of the smallest count, which it is
    never below. It is as confidential as the counts.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Theorem 11.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> counts = [348] + [24667] * 32
    >>> round(bias_bound(Laplace("5"), counts, [[1] * 33]), 3)
    0.163
    """
    farthest, margin = region(x, matrix)
    return float(farthest * outside_probability(law, np.size(np.asarray(x)), margin)) if farthest else 0.0
