"""Random matrices of whole numbers, and every whole vector near zero that keeps their sums: the slow and obvious way."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.stats import chi2

ROOM = 1_500_000
"""Vectors that are looked at, at most."""


def random_matrix(rng, most=4):
    """Signed, entries to 5, 2 to 8 cells, at most `most` dimensions left."""
    while True:
        n = int(rng.integers(2, 9))
        m = int(rng.integers(max(1, n - most), n))
        matrix = rng.integers(-5, 6, (m, n))
        if np.linalg.matrix_rank(matrix) == m and not (matrix == 0).all(axis=1).any():
            return matrix


def near_zero(matrix):
    """All vectors of the lattice whose free cells are within a radius, and that radius.

    A square part that is not singular determines its cells from the others; what comes out whole is on the lattice.
    """
    m, n = matrix.shape
    dependent = max(combinations(range(n), m), key=lambda c: abs(np.linalg.det(matrix[:, c])) > 0.5)
    if abs(np.linalg.det(matrix[:, dependent])) < 0.5:
        raise AssertionError("the rows depend on each other")
    others = [cell for cell in range(n) if cell not in dependent]
    radius = int((ROOM ** (1 / len(others)) - 1) / 2)
    radius = min(radius, 700)
    free = np.indices((2 * radius + 1,) * len(others)).reshape(len(others), -1).T - radius
    v = np.zeros((len(free), n), np.int64)
    v[:, others] = free
    v[:, dependent] = np.rint(-(free @ matrix[:, others].T) @ np.linalg.inv(matrix[:, dependent]).T)
    return v[(v @ matrix.T == 0).all(axis=1)], radius


def smallest_through(vectors, size):
    """Per cell the least size of the vectors that move it; infinite where none does."""
    return np.where(vectors != 0, size[:, None], np.inf).min(axis=0)


def counted(drawn, vectors):
    """How often each of the vectors was drawn, and how often something else; by a random key for each vector."""
    key = np.random.default_rng(7).integers(1, 2**62, vectors.shape[1]) | 1
    keys, of_drawn = vectors @ key, drawn @ key
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys[order], of_drawn), len(keys) - 1)
    known = keys[order][at] == of_drawn
    return np.bincount(order[at[known]], minlength=len(keys)), int((~known).sum())


def chance(observed, elsewhere, law, least=20):
    """Chi-square p-value of counts against a law; what is expected less than `least` times is taken as one."""
    draws = observed.sum() + elsewhere
    expected = law * draws
    common = expected >= least
    o = np.append(observed[common], observed[~common].sum() + elsewhere)
    e = np.append(expected[common], expected[~common].sum())
    if e[-1] < least:  # then draws from nowhere are wrong by themselves
        if o[-1] > e[-1] + 12 * np.sqrt(e[-1] + 10):
            return 0.0
        o, e = o[:-1], e[:-1]
    return float(chi2.sf(((o - e) ** 2 / e).sum(), len(e) - 1)) if len(e) > 1 else 1.0
