"""Laplace noise as a mixture of normal laws with drawn variances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.table_walks.linked import LinkedValues

MIN_GAP_SCALES = 1e-4
"""Least gap of a count and its value that are not equal (scales of Laplace noise)."""


def normal_given_variances(
    rng: np.random.Generator, known: LinkedValues, gap: NDArray[np.float64]
) -> LinkedValues:
    """Return Laplace laws as normal ones, each with a variance V drawn given the gap d of count and value.

    As exp(-s |d|) is the integral of V^(-1/2) exp(-d^2 / (2 V) - s^2 V / 2), but for a factor, V being exponential before d is
    known, 1 / V is inverse normal given d (Andrews and Mallows 1974, "Scale mixtures of normal distributions"), and s^2 V
    chi-squared of one degree where d is 0. Far from zero, where the normal law of the noise's own variance would hardly ever
    return, V is large.
    """
    at = known.slope > 0
    if not at.any():
        return known
    curve, slope, far = known.curve.copy(), known.slope[at], np.abs(gap[at])
    near = slope**2 / rng.chisquare(1.0, far.size)
    curve[at] += 0.5 * np.where(
        far > 0, rng.wald(slope / np.maximum(far, MIN_GAP_SCALES / slope), slope**2), near
    )
    return known._replace(slope=np.where(at, 0.0, known.slope), curve=curve)
