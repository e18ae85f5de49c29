"""Slow obvious twins of the inference kernels: enumerate everything."""

from __future__ import annotations

from itertools import product

import numpy as np


def leaves_below(child_ptr):
    """`(nodes, leaves)` 0/1 matrix: which leaves each node is the sum of."""
    n = len(child_ptr) - 1
    leaves = [v for v in range(n) if child_ptr[v] == child_ptr[v + 1]]
    below = np.zeros((n, len(leaves)), dtype=np.int64)
    for v in reversed(range(n)):
        if v in leaves:
            below[v, leaves.index(v)] = 1
        for c in range(child_ptr[v], child_ptr[v + 1]):
            below[v] += below[c]
    return below


def enumerate_tree(child_ptr, log_factors, ranges):
    """All vectors of node counts with their posterior probabilities.

    `log_factors[v](counts)` is the log of everything known about node v on its own; `ranges` the
    values tried for each leaf.
    """
    below = leaves_below(child_ptr)
    leaves = np.array(list(product(*ranges)))
    nodes = leaves @ below.T
    log = sum(f(nodes[:, v]) for v, f in log_factors.items())
    mass = np.exp(log - log.max())
    return nodes, mass / mass.sum()


def marginal(values, mass):
    """Distinct values with their total mass."""
    distinct, which = np.unique(values, return_inverse=True)
    return distinct, np.bincount(which, mass)


def enumerate_inequalities(logpmf, z, rows, bounds, ranges):
    """All integer points of a polyhedron with their posterior probabilities."""
    points = np.array(list(product(*ranges)), dtype=float)
    points = points[(points @ rows.T >= bounds).all(axis=1)]
    log = sum(f(points[:, i] - z[i]) for i, f in enumerate(logpmf))
    mass = np.exp(log - log.max())
    return points, mass / mass.sum()
