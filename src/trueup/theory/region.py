"""The region of counts with `A v = A x`, `v >= 0`, and the distance of the true counts from its ends (Zhu et al.)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike

from trueup.errors import DataError, SpecError
from trueup.noise.law import Law
from trueup.theory.ball import outside_probability
from trueup.theory.bias import error_operator


class RegionEnds(NamedTuple):
    """The distances of true counts from the ends of the region that (P+) projects on.

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
    """Return C' and the margin of true counts `x (n,)` under known sums `A x`; they are as confidential as the counts.

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
        raise DataError("the counts are not a vector of finite numbers of at least zero")
    if a.shape[1] != counts.size:
        raise SpecError(
            f"the matrix has {a.shape[1]} columns", needed=f"one for each of {counts.size} counts"
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
    """Return the largest change of count `i` within the region, either way, by two linear programs."""
    changes = []
    for sign in (1.0, -1.0):
        cost = np.zeros(x.size)
        cost[i] = sign
        found = scipy.optimize.linprog(cost, A_eq=a, b_eq=a @ x, bounds=(0, None), method="highs")
        if found.status == 3:
            return np.inf
        if found.status != 0:
            raise SpecError("the ends of the region were not found", needed="sums of a moderate size")
        changes.append(abs(float(found.x[i]) - x[i]))
    return float(max(changes))


def bias_bound(law: Law, x: ArrayLike, matrix: ArrayLike) -> float:
    """Bound (counts) on the bias of every count that (P+) leaves, for noise of one law on every count and any sums `A x`.

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
