"""The exact posterior table of two true counts behind a multinomial mode or draw of noisy ones.

For two parts the likelihood is a product of three matrices,

    P(k | N_1, N_2)  =  T(N_1 + N_2) . (K_1 B K_2')(N_1, N_2),

with K_s the law of the noisy count a_s given N_s, and B(a_1, a_2) the probability that the release
is k: 0 or 1 for the mode (Wang & Reiter 2021, section 4), a binomial mass for the draw (Wang 2020,
Algorithm 2). Where the released total depends on n* = n_1 + n_2, B splits by how it does.

Products of two matrices given by their logarithms, accurate however small the entries.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from trueup.kernel.compiled import njit
from trueup.kernel.released.tables import Total

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_ONE_THREAD = 2**18


def mode_table(first: Integers, second: Integers, k: Integers) -> NDArray[np.bool_]:
    """Return a mask (i, j) of weights `first[i]`, `second[j]` for which Finucan's algorithm gives `k`.

    With S = 2 the start is `c = m + 1`: the floors add up to m, or to m + 1 where both shares are
    whole, and then the first part gives one back. Exact in integers below 2^31.
    """
    a, b = first[:, None], second[None, :]
    whole = (k.sum() + 1) * a
    total = np.maximum(a + b, 1)
    mode = np.where(whole % total == 0, whole // total - 1, whole // total)
    mode = np.where(a == 0, 0, np.where(b == 0, k.sum(), mode))
    return (mode == k[0]) & (a + b > 0)


def draw_table(first: Integers, second: Integers, k: Integers) -> Reals:
    """Return the binomial mass of `k` for weights `first[i]`, `second[j]`, (i, j)."""
    a, b = first[:, None].astype(float), second[None, :].astype(float)
    total = np.maximum(a + b, 1.0)
    log = gammaln(k.sum() + 1) - gammaln(k + 1).sum() + xlogy(k[0], a / total) + xlogy(k[1], b / total)
    return np.where(a + b > 0, np.exp(log), 0.0)


def posterior_two(
    windows: tuple[Integers, Integers],
    noisy: tuple[Integers, Integers],
    given: tuple[Reals, Reals],
    released: Reals,
    total: Total,
    trials: int,
) -> Reals:
    """Return the posterior masses of two true counts under flat priors.

    Parameters
    ----------
    windows
        True counts of either part, in order.
    noisy
        Noisy counts n (negative ones included) of either part, in order.
    given
        `(windows, noisy)` mass of each noisy count given each true one, of either part.
    released
        `(noisy, noisy)` probability of what was released.
    total
        What the released total says of the true one.
    trials
        The released total m (counts).

    Returns
    -------
    ndarray, shape (len(windows[0]), len(windows[1]))

    Notes
    -----
    Wang & Reiter (2021), equation (11).
    """
    sums = windows[0][:, None] + windows[1][None, :]
    likelihood = np.exp(total.log)[:, np.clip(sums - total.low, 0, total.log.shape[1] - 1)]
    likelihood[:, (sums < total.low) | (sums >= total.low + total.log.shape[1])] = 0.0
    if total.radius < 0:
        posterior = _between(given, released) * likelihood[0]
        return posterior / posterior.sum()
    row = _likelihood_rows(noisy[0][:, None] + noisy[1][None, :] - trials, total.radius)
    posterior = np.sum(
        [_between(given, np.where(row == r, released, 0.0)) * likelihood[r] for r in range(4)], axis=0
    )
    return posterior / posterior.sum()


def _between(given: tuple[Reals, Reals], released: Reals) -> Reals:
    """Sum the released table over both noisy counts."""
    return _product(_product(given[0], released), np.ascontiguousarray(given[1].T))


def _product(a: Reals, b: Reals) -> Reals:
    """Multiply matrices, small ones a few rows at a time.

    BLAS wakes its threads for more than about 2^18 multiplications; where cores are busy, waiting
    for them takes a hundred times as long as a small product.
    """
    rows = _ONE_THREAD // b.size
    if rows == 0:
        return a @ b
    return np.concatenate([a[k : k + rows] @ b for k in range(0, len(a), rows)])


def given_true(true: Integers, noisy: Integers, pmf: Reals) -> Reals:
    """Return the mass of each noisy count given each true one."""
    distance = np.abs(true[:, None] - noisy[None, :])
    return np.where(distance < pmf.size, pmf[np.minimum(distance, pmf.size - 1)], 0.0)


def _likelihood_rows(excess: Integers, radius: int) -> Integers:
    """Return the row of the likelihood for each n* - m; -1 if m cannot have been released."""
    inside = np.where(np.abs(excess) > radius, -1, 0)
    if radius == 0:
        return np.where(excess == 0, 3, -1)
    return np.where(excess == -radius, 1, np.where(excess == radius, 2, inside))


def log_product(a: Reals, b: Reals) -> Reals:
    """Return `log(exp(a) @ exp(b))`, every entry scaled by its own largest term.

    Parameters
    ----------
    a, b
        `(n, k)` and `(k, m)` logarithms; -inf for zero.

    Examples
    --------
    >>> log_product(np.array([[-5000.0, -5001.0]]), np.zeros((2, 1))).round(4)
    array([[-4999.6867]])
    """
    return _log_product(np.ascontiguousarray(a, float), np.ascontiguousarray(b.T, float))


@njit(cache=True)
def _log_product(a, b):
    out = np.empty((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            top = -math.inf
            for k in range(a.shape[1]):
                top = max(top, a[i, k] + b[j, k])
            total = 0.0
            if top > -math.inf:
                for k in range(a.shape[1]):
                    total += math.exp(a[i, k] + b[j, k] - top)
            out[i, j] = top + math.log(total) if total > 0 else -math.inf
    return out
