"""Slow obvious twins of `trueup.kernel.settling.posterior_mean` and `two_way`: everything is listed."""

from __future__ import annotations

from itertools import product

import numpy as np
import piqp
from scipy.special import digamma, gammaln


def law(mean, variance, alpha, beta, most=200_000):
    """Mean, variance and mean of `psi(x + alpha) - psi(alpha)` of `Gamma(x + alpha) / Gamma(x + beta) N(x; mean, variance)`."""
    x = np.arange(most)
    log = gammaln(x + alpha) - gammaln(x + beta) - (x - mean) ** 2 / (2 * variance)
    p = np.exp(log - log.max())
    p /= p.sum()
    first = p @ x
    return first, p @ (x - first) ** 2, p @ (digamma(x + alpha) - digamma(alpha))


def log_weight(x, b):
    """Log of `w(x; b) = Gamma(x + b) / (Gamma(b) x!)`."""
    return gammaln(x + b) - gammaln(b) - gammaln(x + 1)


def posterior_mean(tables, covariance, sums, a, kappa):
    """Posterior mean of the children (children, 2 or more cells) of a parent with table `sums`, over all their tables."""
    children = len(tables)
    shares, precision = sums / sums.sum(), np.linalg.inv(covariance)
    splits = [list(_splits(int(s), children)) for s in sums]
    total, weighted = 0.0, np.zeros(tables.shape)
    logs, found = [], []
    for columns in product(*splits):
        x = np.array(columns, float).T
        totals, gap = x.sum(axis=1), x - tables
        log = log_weight(totals, a).sum() - log_weight(totals, kappa).sum()
        log += log_weight(x, kappa * shares).sum() - np.einsum("ci,ij,cj->", gap, precision, gap) / 2
        logs.append(log)
        found.append(x)
    weights = np.exp(np.array(logs) - max(logs))
    for weight, x in zip(weights, found, strict=True):
        total, weighted = total + weight, weighted + weight * x
    return weighted / total


def _splits(units, parts):
    if parts == 1:
        yield (units,)
        return
    for first in range(units + 1):
        for rest in _splits(units - first, parts - 1):
            yield (first, *rest)


def nearest_table(x, v, rows, columns):
    """The nearest nonnegative table with given sums, cells having variances v, by a general solver."""
    n, m = x.shape
    equal = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))[:-1]])
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
    weights = 1 / v.ravel()
    right = np.append(rows, columns[:-1])
    bounds = {"x_l": np.zeros(n * m), "x_u": np.full(n * m, np.inf)}
    solver.setup(np.diag(weights), -weights * x.ravel(), equal, right, **bounds)
    solver.solve()
    return solver.result.x.reshape(n, m)
