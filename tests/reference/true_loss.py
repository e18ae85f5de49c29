"""What a release truly loses, from the masses of its laws over outputs: nothing here uses a formula for a loss.

Databases are vectors of counts over the finest cells; a change is the difference of two. Sums are 0/1 rows over cells.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.reference.sums import matrix

RADIUS = 8
"""Largest L1 norm of changes that are enumerated."""
ORDERS = (1.5, 2.0, 3.0, 5.0)
"""Orders of Renyi divergences; the discrete Gaussian's bound is attained at 2."""


@cache
def ball(n: int, radius: int = RADIUS) -> np.ndarray:
    """Every integer vector of n entries with L1 norm up to `radius`, zero included."""
    vectors = np.zeros((1, 0), np.int8)
    for _ in range(n):
        entries = np.arange(-radius, radius + 1, dtype=np.int8)
        grown = np.hstack([np.repeat(vectors, len(entries), 0), np.tile(entries, len(vectors))[:, None]])
        vectors = grown[np.abs(grown).sum(axis=1) <= radius]
    return vectors.astype(np.int64)


def rows(cells, margin) -> np.ndarray:
    """Whole-number matrix `(groups, n)` of a margin, summed cell by cell."""
    return matrix(cells, margin).astype(np.int64)


def allowed(sums: np.ndarray, zeros: np.ndarray, radius: int = RADIUS) -> np.ndarray:
    """Every change that leaves the sums and the structural zeros, zero excluded."""
    free = np.flatnonzero(~zeros)
    small = ball(len(free), radius)
    small = small[~(small @ sums[:, free].T).any(axis=1) & small.any(axis=1)]
    changes = np.zeros((len(small), len(zeros)), np.int64)
    changes[:, free] = small
    return changes


def pure(law, moved: np.ndarray) -> float:
    """Largest log ratio of the masses of one output, for independent noise and counts that differ by `moved`."""
    worst = 0.0
    for step in moved.tolist():
        noise = np.arange(-abs(step) - 3, abs(step) + 4)
        worst += float(np.max(law.logpmf(noise) - law.logpmf(noise - step)))
    return worst


def concentrated(law, moved: np.ndarray) -> dict[float, float]:
    """Renyi divergence of each order, over the order, for independent noise."""
    found = dict.fromkeys(ORDERS, 0.0)
    noise = np.arange(-120, 121)
    for step in moved.tolist():
        here, there = law.logpmf(noise), law.logpmf(noise - step)
        for order in ORDERS:
            terms = order * here + (1 - order) * there
            found[order] += float(_log_sum(terms)) / (order - 1) / order
    return found


def pure_on(law, lattice: np.ndarray, moved: np.ndarray) -> float:
    """Largest log ratio for joint noise on a lattice, of which all vectors up to a norm are given; infinite off it."""
    if not moved.any():
        return 0.0
    if not (lattice == moved).all(axis=1).any():
        return np.inf
    outputs = np.vstack([np.zeros_like(moved), moved, -moved, lattice[np.abs(lattice).sum(axis=1) <= 4]])
    return float(np.max(_joint(law, outputs) - _joint(law, outputs - moved)))


def concentrated_on(law, lattice: np.ndarray, moved: np.ndarray) -> dict[float, float]:
    """Renyi divergence of each order, over the order, for joint noise on a lattice."""
    if not moved.any():
        return dict.fromkeys(ORDERS, 0.0)
    if not (lattice == moved).all(axis=1).any():
        return dict.fromkeys(ORDERS, np.inf)
    every = np.vstack([np.zeros_like(moved), lattice])
    whole, found = _log_sum(_joint(law, every)), {}
    for order in ORDERS:
        centre = np.rint((1 - order) * moved).astype(
            np.int64
        )  # where the terms are largest; whole for whole orders
        if order != int(order):
            centre = np.zeros_like(moved)
        points = every + centre
        terms = order * _joint(law, points) + (1 - order) * _joint(law, points - moved)
        found[order] = float(_log_sum(terms) - whole) / (order - 1) / order
    return found


def _joint(law, vectors: np.ndarray) -> np.ndarray:
    """Log mass of joint noise up to its normaliser: the product of its cells' factors."""
    return law.logpmf(vectors).sum(axis=-1)


def _log_sum(terms: np.ndarray) -> float:
    top = terms.max()
    return float(top + np.log(np.exp(terms - top).sum()))
