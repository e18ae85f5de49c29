"""The posterior of small histograms of two columns on a hierarchy by listing all tables, compositions integrated by quadrature.

A composition's two gamma numbers of one rate are their sum, gamma, and the first's share of it, beta, independent of each
other: rules of Laguerre and of Jacobi, whose weights are these laws.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import gammaln, logsumexp

EVEN = 0.02
NODES, STEP = 10, 0.25
SIZES = np.arange(-40.0, 40.0, STEP)
"""Logs of sizes."""


def tables(cells, most):
    """All tables `(t, cells)` of counts up to `most`."""
    return np.array(list(product(range(most + 1), repeat=cells)))


def log_rising(x, a):
    """Log of `Gamma(x + a) / Gamma(a)`."""
    return gammaln(x + a) - gammaln(a)


def log_prior(x, middles, a, kappa, rate=0.0):
    """Log prior, up to a constant, of tables of two columns.

    Parameters
    ----------
    x
        `(t, leaves, 2)`.
    middles
        Leaves of each place between, one after the other; None where leaves lie below the root.
    a, kappa
        Of each level below the root: a one number, or one for each place; kappa one, or one for each column.
    rate
        Probability that a leaf is uninhabited.
    """
    return log_totals(x.sum(axis=2), middles, a, rate) + log_cells(x, middles, kappa)


def log_totals(each, middles, a, rate=0.0):
    """Log prior of the leaves' totals `(t, leaves)`, less the factorials of these."""
    total = each.sum(axis=1)
    if not middles:
        return gammaln(total + 1) + _shared(each, a[0], rate)
    above, below = np.broadcast_to(a[0], len(middles)), np.broadcast_to(a[1], each.shape[1])
    log = gammaln(total + 1) - log_rising(total, above.sum())
    for part, own in zip(_parts(middles, each.shape[1]), above):
        log += log_rising(each[:, part].sum(axis=1), own) + _shared(each[:, part], below[part], rate)
    return log


def log_cells(x, middles, kappa):
    """Log probabilities of tables given the leaves' totals, compositions integrated out."""
    theta, weights = _composition(np.full(2, 2**-0.5), 2**0.5)
    inside = np.zeros((len(x), len(theta)))
    for part in _parts(middles, x.shape[1]):
        inside += _middle(x[:, part], theta, kappa) if middles else _leaf(x[:, part], theta, kappa[-1])
    return logsumexp(inside, b=weights, axis=1)


def _parts(middles, leaves):
    edges = np.cumsum([0, *middles]) if middles else range(leaves + 1)
    return [slice(p, q) for p, q in pairwise(edges)]


def _shared(each, a, rate):
    """Log probability of totals given their sum, less its factorial's: over all sets of places that may be inhabited."""
    log = (log_rising(each, a) - gammaln(each + 1)).sum(axis=1)
    size, sets, a = each.shape[1], [], np.broadcast_to(a, each.shape[1])
    for lived in product((False, True), repeat=size):
        if any(lived):
            chance = rate ** (size - sum(lived)) * (1 - rate) ** sum(lived) / (1 - rate**size)
            empty = (each[:, ~np.array(lived)] == 0).all(axis=1)
            sets.append(
                np.where(empty, chance, 0.0) / np.exp(log_rising(each.sum(axis=1), a[list(lived)].sum()))
            )
    return log + np.log(sum(sets))


def _composition(shape, rate):
    """Nodes `(k, 2)` and weights of two independent gamma numbers of equal rates."""
    n, whole = np.arange(NODES), sum(shape)
    sums, second = _rule(2 * n + whole, np.sqrt(n[1:] * (n[1:] + whole - 1)))
    shares, first = beta_rule(*shape, NODES)
    share, size = (part.ravel() for part in np.meshgrid(shares, sums / rate))
    return np.stack([size * share, size * (1 - share)], axis=1), np.outer(second, first).ravel()


def beta_rule(a, b, nodes):
    """Nodes and weights of a beta law: Jacobi's polynomials with exponents b - 1 and a - 1, moved from -1..1 to 0..1."""
    n, whole = np.arange(nodes), a + b
    k, twice = n[1:], 2 * n[1:] + whole - 2
    middle = np.append((a - b) / whole, (a - b) * (whole - 2) / (twice * (twice + 2)))
    side = 4 * k * (k + b - 1) * (k + a - 1) / (twice**2 * (twice + 1))
    side[1:] *= (k[1:] + whole - 2) / (twice[1:] - 1)
    side[0] = 4 * a * b / (whole**2 * (whole + 1))  # the factors that may vanish cancel
    shares, weights = _rule(middle, np.sqrt(side))
    return (shares + 1) / 2, weights


def _rule(middle, side):
    """Nodes and weights of the law whose polynomials have these recurrences (Golub and Welsch 1969)."""
    nodes, vectors = eigh_tridiagonal(middle, side)
    return nodes, vectors[0] ** 2


def _leaf(x, theta, kappa):
    """Log probabilities `(t, k)` of one place's cells given its total."""
    found, where = np.unique(x[:, 0], axis=0, return_inverse=True)
    if np.ndim(kappa) == 0:
        return _alike(found[:, None], theta, kappa)[where.ravel()]
    return _kept(found.tobytes(), theta.tobytes(), tuple(kappa))[where.ravel()]


@lru_cache(maxsize=2)
def _kept(found, theta, kappa):
    """Places and values of `a` that differ ask for the same."""
    numbers = np.frombuffer(found, np.int64).reshape(-1, 1, 2)
    return _unlike(numbers, np.frombuffer(theta).reshape(-1, 2), kappa)


def _alike(x, theta, kappa):
    """Dirichlet-multinomial, `kappa` that of both columns."""
    total, b = x.sum(axis=2), kappa * theta
    ways = gammaln(total + 1) - gammaln(x + 1).sum(axis=2)
    return ways + log_rising(x, b).sum(axis=2) - log_rising(total, b.sum(axis=1))


def _unlike(x, theta, kappa):
    """Multinomial around shares of independent gamma numbers of unlike rates: sizes s, by the trapezoidal rule in log s.

    Beyond the last step all factors are powers of s.
    """
    kappa, total, b = np.asarray(kappa), x.sum(axis=2), kappa * theta
    whole, rates = b.sum(axis=1), np.log(kappa[:, None] + np.exp(SIZES))
    log = np.full((len(x), len(theta)), -np.inf)
    for spare in np.eye(2):
        fixed = log_rising(x + spare, b).sum(axis=2) + (b * np.log(kappa)).sum(axis=1)
        over = (total[:, :, None] + 1) * SIZES - np.einsum("tkj,js->tks", x + spare + b, rates)
        inside = logsumexp(over, axis=2) + np.log(STEP)
        beyond = np.log(np.maximum(1 / whole - STEP / 2, 1e-9)) - whole * SIZES[-1]
        log = np.logaddexp(log, fixed + np.logaddexp(inside, beyond))
    return log - gammaln(x + 1).sum(axis=2)


def _middle(x, above, kappa):
    """Log mean over a place's composition around each of `above`, of its leaves' probabilities: `(t, k)`."""
    found, where = np.unique(x.reshape(len(x), -1), axis=0, return_inverse=True)
    leaves = found.reshape(len(found), -1, 1, 2)
    out = np.empty((len(found), len(above)))
    for k, theta in enumerate(above):
        own, weights = _composition(kappa[0] * theta + EVEN, kappa[0])
        inside = sum(_leaf(leaves[:, leaf], own, kappa[1]) for leaf in range(leaves.shape[1]))
        out[:, k] = logsumexp(inside, b=weights, axis=1)
    return out[where.ravel()]
