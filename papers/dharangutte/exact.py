"""Exact moments of one cell's noise given that no invariant changes, for the paper's two examples.

**L1 norm.** Independent factors `f(k) = exp(-epsilon |k|)`, given that the invariants' sums are zero. With the Fourier series
`F_p(t) = sum_k |k|^p f(k) cos(k t)` the total mass is the mean over angles of a product of `F_0`, one for each cell at the sum of
the angles of the invariants that it is part of, and the p-th absolute moment of a cell has `F_p` in its place. On K equally
spaced angles the mean counts sums that are multiples of K as zero: an error of about `exp(-epsilon K)`.

The 14 records have three invariants, hence three angles. The 4 x 4 table has eight, but its columns are independent given the
angles of the rows: a column's factor is a mean over its own angle, and one row's angle may be zero because the sums of rows
and of columns agree. So three angles and one, in place of eight.

**L2 norm.** Sums over a lattice of dimension d are, by Poisson summation, sums over the dual lattice of the Fourier transform,
which for `exp(-epsilon ||v||)` falls as `(1 + (2 pi |w| / epsilon)^2)^(-(d + 1) / 2)`. For the two examples all terms but
that of w = 0 add up to less than 1e-9 at epsilon 1/4, so that the moments are those of the density on the lattice's span: the
norm has a gamma law with shape d and rate epsilon, the direction is uniform, and a cell's second moment is
`P_ii (d + 1) / epsilon^2` with P the projection on the span.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from papers.dharangutte.examples import EPSILON, Example, keeps, unbiased
from papers.row import Row, furthest, held

Reals = NDArray[np.float64]

ANGLES = 144
"""exp(-144 / 4) is 2e-16."""
FARTHEST = 400
REGIONS = np.array([sets for sets in np.ndindex(2, 2, 2) if any(sets)])[::-1]


class Moments(NamedTuple):
    """Mean of the absolute value, and of the square, of every cell's noise, (n,)."""

    absolute: Reals
    square: Reals


def moments(example: Example, norm: int, epsilon: float) -> Moments:
    """Exact moments of the noise of every cell; of the L2 norm's, the absolute value is not computed.

    Parameters
    ----------
    example
        `records()` or `children()`.
    norm
        1 or 2.
    epsilon
        Inverse scale.
    """
    if norm == 2:
        return _of_l2(example.invariants, epsilon)
    return _of_records(epsilon) if len(example.invariants) == 3 else _of_table(epsilon)


def _series(epsilon: float) -> list[Reals]:
    """`F_0, F_1, F_2` at the angles."""
    k = np.arange(1, FARTHEST)
    angle = 2 * np.pi * np.arange(ANGLES) / ANGLES
    waves = 2 * np.exp(-epsilon * k) * np.cos(np.outer(angle, k))
    return [1.0 + waves.sum(axis=1), *(np.asarray(waves @ k.astype(float) ** p) for p in (1, 2))]


@cache
def _of_records(epsilon: float) -> Moments:
    """Two records in each region; angles by region are sums of the angles of its sets."""
    series, grid = _series(epsilon), np.indices((ANGLES,) * 3)
    places = [np.tensordot(sets, grid, 1) % ANGLES for sets in REGIONS]
    whole = np.prod([series[0][at] ** 2 for at in places], axis=0)
    mass = whole.mean()
    found = [[(whole * (s / series[0])[at]).mean() / mass for at in places] for s in series[1:]]
    return Moments(*(np.repeat(each, 2) for each in found))


@cache
def _of_table(epsilon: float) -> Moments:
    """All 16 cells have the same law."""
    series = _series(epsilon)
    shifted = series[0][
        (np.arange(ANGLES)[:, None] + np.arange(ANGLES)) % ANGLES
    ]  # (angle of the row, of the column)
    pairs = (shifted[:, None, :] * shifted[None, :, :]).reshape(-1, ANGLES)

    def column(first: Reals) -> Reals:
        return pairs @ (shifted * first).T / ANGLES

    plain = column(series[0])
    mass = (plain**4).mean()
    return Moments(*(np.full(16, (plain**3 * column(s)).mean() / mass) for s in series[1:]))


def _of_l2(invariants: NDArray[np.int64], epsilon: float) -> Moments:
    span = np.eye(invariants.shape[1]) - np.linalg.pinv(invariants) @ invariants
    dimension = round(float(np.trace(span)))
    square = np.diag(span) * (dimension + 1) / epsilon**2
    return Moments(np.full_like(square, np.nan), square)


def mean_norm(example: Example, norm: int, epsilon: float) -> float:
    """Exact mean of the noise's norm."""
    if norm == 1:
        return float(moments(example, 1, epsilon).absolute.sum())
    return (example.invariants.shape[1] - np.linalg.matrix_rank(example.invariants)) / epsilon


def as_stated(example: Example, noise: NDArray, norm: int) -> list[Row]:
    """Whether draws `(b, n)` keep the invariants, are unbiased, and have the exact variances, together and cell by cell."""
    right, errors = moments(example, norm, float(EPSILON)).square, noise.astype(float)
    label, squares = f"L{norm}", errors**2
    together = squares.mean(axis=1)
    return [
        keeps(example, noise, label),
        unbiased(errors, label),
        held(
            f"{label}: mean squared error of a cell",
            float(together.mean()),
            float(right.mean()),
            ours_error=float(together.std()) / np.sqrt(len(errors)),
        ),
        furthest(
            f"{label}: variances of cells",
            squares.mean(axis=0),
            right,
            squares.std(axis=0) / np.sqrt(len(errors)),
        ),
    ]
