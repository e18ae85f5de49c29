"""The posterior of small histograms on a hierarchy by listing all tables: compositions are integrated out exactly.

`Gamma(x + kappa t) / Gamma(kappa t)` is a polynomial in t, whose coefficients are Stirling numbers, and means of monomials
under a Dirichlet law are known; at the root, whose composition is uniform, what is left is integrated by Gauss and
Legendre's rule.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from scipy.special import betaln, gammaln

EVEN = 0.1
NODES = 40


def stirling(most):
    """Unsigned Stirling numbers of the first kind, `(most + 1, most + 1)`."""
    s = np.zeros((most + 1, most + 1))
    s[0, 0] = 1
    for n in range(most):
        s[n + 1, 1:] = s[n, :-1]
        s[n + 1] += n * s[n]
    return s


def tables(cells, most):
    """All tables `(t, cells)` of counts up to `most`."""
    return np.array(list(product(range(most + 1), repeat=cells)))


def log_rising(x, a):
    """Log of `Gamma(x + a) / Gamma(a)`."""
    return gammaln(x + a) - gammaln(a)


def log_prior(x, middles, a, kappa):
    """Log prior, up to a constant, of tables of two columns.

    Parameters
    ----------
    x
        `(t, leaves, 2)`.
    middles
        Leaves of each place between, one after the other; None where leaves lie below the root.
    a, kappa
        Of each level below the root.
    """
    each = x.sum(axis=2)
    log = log_rising(each, a[-1]) - log_rising(each, kappa[-1]) - gammaln(x + 1).sum(axis=2)
    log = log.sum(axis=1)
    total = each.sum(axis=1)
    log += gammaln(total + 1) - log_rising(total, a[0] * (len(middles) if middles else x.shape[1]))
    if middles:
        edges = np.cumsum([0, *middles])
        parts = [slice(p, q) for p, q in pairwise(edges)]
        for part, size in zip(parts, middles):
            own = each[:, part].sum(axis=1)
            log += log_rising(own, a[0]) - log_rising(own, size * a[1])
    else:
        parts = [slice(v, v + 1) for v in range(x.shape[1])]
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    inside = np.zeros((len(x), NODES))
    for part in parts:
        inside += _middle(x[:, part], nodes, kappa) if middles else _leaf(x[:, part], nodes, kappa[-1])
    return log + np.log(np.exp(inside - inside.max(axis=1, keepdims=True)) @ weights) + inside.max(axis=1)


def _leaf(x, theta, kappa):
    return log_rising(x[:, 0, :1], kappa * theta) + log_rising(x[:, 0, 1:], kappa * (1 - theta))


def _middle(x, theta, kappa):
    """Log mean over a place's composition, Beta around the root's, of its leaves' factors: `(t, nodes)`."""
    powers = [_polynomial(x[:, :, j], kappa[1]) for j in range(2)]
    one, other = kappa[0] * theta + EVEN, kappa[0] * (1 - theta) + EVEN
    i = np.arange(powers[0].shape[1])
    means = np.exp(
        betaln(one[:, None, None] + i[:, None], other[:, None, None] + i) - betaln(one, other)[:, None, None]
    )
    return np.log(np.einsum("ti,tk,nik->tn", *powers, means, optimize=True))


def _polynomial(x, kappa):
    """Coefficients of the product of rising factorials of `kappa t` over leaves, `(t, degree + 1)`."""
    s = stirling(int(x.max()))
    scaled = s * kappa ** np.arange(s.shape[1])
    out = np.ones((len(x), 1))
    for leaf in range(x.shape[1]):
        rows = scaled[x[:, leaf]]
        fresh = np.zeros((len(x), out.shape[1] + rows.shape[1] - 1))
        for k in range(rows.shape[1]):
            fresh[:, k : k + out.shape[1]] += out * rows[:, k : k + 1]
        out = fresh
    return out
