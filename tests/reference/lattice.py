"""Slow and obvious twins for laws on a lattice: enumerate its points, weigh them, compare draws."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
from numba import njit
from scipy.stats import chi2


def table_margins(rows, columns):
    """Row and column sums of a table in flat order."""
    cells = list(product(range(rows), range(columns)))
    down = [[int(i == row) for i, _ in cells] for row in range(rows)]
    across = [[int(j == column) for _, j in cells] for column in range(columns)]
    return np.array(down + across)


def one_way_margins(*shape):
    """Sums over each place of each axis of a grid in flat order."""
    axes = np.indices(shape).reshape(len(shape), -1)
    return np.array(
        [axes[axis] == place for axis in range(len(shape)) for place in range(shape[axis])]
    ).astype(int)


def three_crossing_sums(each=2):
    """Three sets of records with every intersection present, `each` records in each of seven regions."""
    return np.array([[region >> k & 1 for region in range(1, 8) for _ in range(each)] for k in range(3)])


def rank(matrix):
    """The rank of an integer matrix, by python-flint."""
    from flint import fmpz_mat

    return fmpz_mat(np.asarray(matrix).tolist()).rank()


def points(matrix, dependent, radius):
    """All v with A v = 0 whose other cells are within `radius`: solve for the dependent ones and check."""
    n = matrix.shape[1]
    others = [cell for cell in range(n) if cell not in dependent]
    grid = np.array(list(product(range(-radius, radius + 1), repeat=len(others))), dtype=np.int64)
    solved = np.linalg.lstsq(matrix[:, dependent], -(matrix[:, others] @ grid.T), rcond=None)[0]
    v = np.zeros((len(grid), n), np.int64)
    v[:, others], v[:, dependent] = grid, np.rint(solved.T)
    return v[(v @ matrix.T == 0).all(axis=1)]


def law_of(vectors, log_weight):
    """Probabilities of the points under a log weight."""
    weight = np.exp(log_weight(vectors))
    return weight / weight.sum()


def p_value(drawn, vectors, probability, least=20):
    """Chi-square p-value of draws against a law on points; points expected less than `least` times are pooled."""
    expected = probability * len(drawn)
    order = np.flatnonzero(expected >= least)
    place = {tuple(vectors[i]): k for k, i in enumerate(order)}
    found = Counter(place.get(tuple(v), -1) for v in drawn.tolist())
    observed = np.array([found[k] for k in range(len(order))] + [found[-1]])
    mean = np.append(expected[order], len(drawn) - expected[order].sum())
    keep = mean >= least
    statistic = ((observed - mean)[keep] ** 2 / mean[keep]).sum()
    # Draws where the law has nothing at all are wrong whatever the statistic says.
    if not keep[-1] and observed[-1] > mean[-1] + 12 * np.sqrt(mean[-1] + 10):
        return 0.0
    return chi2.sf(statistic, keep.sum() - 1)


def slow_free(matrix, dependent, epsilons, count, rng, *, divide="exactly", accept=True):
    """Draw by rejection on free cells in NumPy; the keywords make named mistakes.

    `divide="round"` rounds the dependent cells instead of rejecting, `accept=False` skips the weight.
    """
    n = matrix.shape[1]
    others = [cell for cell in range(n) if cell not in dependent]
    inverse = np.linalg.inv(matrix[:, dependent])
    kept, total = [], 0
    while total < count:
        v = np.zeros((count, n), np.int64)
        for cell in others:
            chance = -np.expm1(-epsilons[cell])
            v[:, cell] = rng.geometric(chance, count) - rng.geometric(chance, count)
        solved = -(v[:, others] @ matrix[:, others].T) @ inverse.T
        v[:, dependent] = np.rint(solved)
        keep = np.ones(count, bool) if divide == "round" else (v @ matrix.T == 0).all(axis=1)
        if accept:
            weight = np.exp(-(np.abs(v[:, dependent]) * np.asarray(epsilons)[dependent]).sum(axis=1))
            keep &= rng.random(count) < weight
        kept.append(v[keep])
        total += keep.sum()
    return np.concatenate(kept)[:count]


def slow_beginning(epsilon, k, left, summands=1, far=400):
    """Probability that the cells of one row sum to zero where columns still lack `left`, by convolutions of plain masses."""
    v = np.arange(-far, far + 1)
    one = np.exp(-epsilon * np.abs(v))
    sums = [one]
    for _ in range(summands * k - 1):
        sums.append(np.convolve(sums[-1], one, "same"))
    cell, rest = sums[summands - 1], sums[summands * (k - 1) - 1]
    total = (v == 0).astype(float)
    for lack in left:
        mass = cell * np.interp(lack - v, v, rest, 0.0, 0.0)
        total = np.convolve(total, mass / mass.sum(), "same")
    return total[far]


@njit
def swapped(rng, epsilon, tables, sweeps):
    """Change tables `(chains, r, c)` by so many sweeps of random swaps of two rows and columns (Metropolis)."""
    chains, rows, columns = tables.shape
    for chain in range(chains):
        table = tables[chain]
        for _ in range(sweeps * rows * columns // 4):
            i, j = rng.integers(0, rows), rng.integers(0, columns)
            k = (i + rng.integers(1, rows)) % rows
            m = (j + rng.integers(1, columns)) % columns
            jump = rng.geometric(min(0.9, 0.6 * epsilon)) * (2 * rng.integers(0, 2) - 1)
            gain = abs(table[i, j]) + abs(table[i, m]) + abs(table[k, j]) + abs(table[k, m])
            gain -= abs(table[i, j] + jump) + abs(table[k, m] + jump)
            gain -= abs(table[i, m] - jump) + abs(table[k, j] - jump)
            if np.log(1 - rng.random()) < epsilon * gain:
                table[i, j] += jump
                table[k, m] += jump
                table[i, m] -= jump
                table[k, j] -= jump
    return tables
