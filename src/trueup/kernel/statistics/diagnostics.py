"""Convergence diagnostics of Markov chains: split R-hat and effective sample size of many quantities.

Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), "Rank-normalization, folding, and
localization: an improved R-hat". Constant quantities (invariants) have nothing to converge: their
R-hat is 1 and their effective size the number of draws.

One file: draws that are sorted and events are compared by the same sums.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Reals = NDArray[np.float64]
BATCHES = 20
MIN_CHAIN_DRAWS = 8
"""Draws of each chain below which there is no diagnosis: half a chain is too short for a variance."""


def diagnose(draws: NDArray) -> tuple[Reals, Reals]:
    """Return R-hat and bulk effective sample size of each quantity.

    Parameters
    ----------
    draws
        `(chains, draws, n)` values.

    Returns
    -------
    r_hat, ess
        `(n,)` each; R-hat is the larger of the bulk and the folded (tail) one. NaN where chains of fewer than eight draws
        are too short for a diagnosis, as they always are of a quantity that varies.

    Examples
    --------
    >>> chains = np.random.default_rng(0).normal(size=(4, 1000, 1))
    >>> r_hat, ess = diagnose(chains)
    >>> bool(r_hat[0] < 1.01), bool(3000 < ess[0] < 5200)
    (True, True)
    >>> bool(diagnose(chains + np.arange(4)[:, None, None])[0][0] > 1.5)
    True
    """
    from scipy.special import ndtri  # slow to import, and chains alone need it

    constant = (draws == draws[:1, :1]).all(axis=(0, 1))
    if draws.shape[1] < MIN_CHAIN_DRAWS:
        unknown = np.where(constant, 1.0, np.nan)
        return unknown, unknown * float(np.prod(draws.shape[:2]))
    many = 2 * draws.shape[0] * (draws.shape[1] // 2)
    table = ndtri((np.arange(2, 2 * many + 1) / 2 - 0.375) / (many + 0.25))
    values = _by_quantity(draws)
    r_hat, ess = _r_hats_and_sizes(values, values.reshape(len(values), many).argsort(axis=1), table)
    return np.where(constant, 1.0, r_hat), np.where(constant, float(np.prod(draws.shape[:2])), ess)


def diagnose_means(draws: NDArray) -> tuple[Reals, Reals]:
    """Return R-hat and effective sample sizes of means, without the ranks of draws.

    Parameters
    ----------
    draws
        `(chains, draws, n)` values.

    Returns
    -------
    r_hat, ess
        `(n,)` each. The variance of means of some 20 batches of each chain says how many independent draws would be as good
        (Flegal and Jones 2010), within a third.

    Examples
    --------
    >>> chains = np.random.default_rng(0).normal(size=(2, 1000, 1))
    >>> r_hat, ess = diagnose_means(chains)
    >>> bool(r_hat[0] < 1.01), bool(800 < ess[0] < 5000)
    (True, True)
    """
    chains, length, n = draws.shape
    if length < MIN_CHAIN_DRAWS:
        return diagnose(draws)
    halves = _halves(draws).astype(float)
    within, pooled = _variances(halves)
    size = max(length // BATCHES, 1)
    count = length // size
    means = draws[:, : count * size].reshape(chains, count, size, n).mean(axis=2)
    spread = means.var(axis=(0, 1), ddof=1) * size
    variance = draws.var(axis=(0, 1))
    constant = variance == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.where(constant, 1.0, np.sqrt(pooled / within))
        ess = np.where(constant, 1.0, variance / np.maximum(spread, 1e-300)) * chains * length
    return r_hat, np.minimum(ess, chains * length)


def tail_sizes(draws: NDArray) -> Reals:
    """Return the tail effective sample size of each quantity: the smaller one of its 5 % and 95 % quantiles.

    Parameters
    ----------
    draws
        `(chains, draws, n)` values.

    Examples
    --------
    >>> tails = tail_sizes(np.random.default_rng(0).normal(size=(4, 1000, 2)))
    >>> tails.shape, bool(tails.min() > 2000)
    ((2,), True)
    """
    if draws.shape[1] < MIN_CHAIN_DRAWS:
        return diagnose(draws)[1]
    total, sizes = float(np.prod(draws.shape[:2])), []
    for low in np.quantile(draws, [0.05, 0.95], axis=(0, 1), method="inverted_cdf"):
        below = _by_quantity(draws <= low)
        # Of whole counts more than 95 % may lie at one end: an event that is always true has no tail.
        constant = (below == below[:, :1, :1]).all(axis=(1, 2))
        sizes.append(np.where(constant, total, _effective_sizes(below)))
    return np.minimum(*sizes)


def r_hat_by_chance(quantities: int, size: float, chains: int = 8) -> float:
    """Return the R-hat, at least 1.01, that the largest of converged quantities exceeds once in 100 runs.

    Of `chains` half-chains with `size` effective draws in all, `R^2 - 1` is about `(F - 1) chains / size` with
    `F = chi2 / (chains - 1)`. The usual 1.01 is meant for one quantity.

    Examples
    --------
    >>> round(r_hat_by_chance(1, 4000), 3), round(r_hat_by_chance(4000, 400), 3)
    (1.01, 1.044)
    """
    from scipy.stats import chi2

    ratio = chi2.isf(0.01 / quantities, chains - 1) / (chains - 1)
    return max(1.01, float(np.sqrt(1 + (ratio - 1) * chains / size)))


def _halves(draws: NDArray) -> NDArray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _by_quantity(draws: NDArray) -> Reals:
    """Return the draws of each quantity as `(n, halves, draws)`, by halves of chains."""
    return np.ascontiguousarray(_halves(draws).transpose(2, 0, 1), float)


def _variances(draws: Reals) -> tuple[Reals, Reals]:
    """Return the mean variance within chains and the pooled estimate of the variance."""
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return within, within * (length - 1) / length + between


@njit(cache=True, error_model="numpy")
def _r_hats_and_sizes(values, order, table):
    """Return R-hat and effective sample size of each quantity, from the sorted order of its draws."""
    n, many = order.shape
    r_hat, ess = np.empty(n), np.empty(n)
    scores, ranked, away = np.empty(values.shape[1:]), np.empty(many), np.empty(many, np.int64)
    for q in range(n):
        flat, own = values[q].ravel(), order[q]
        for i in range(many):
            ranked[i] = flat[own[i]]
        _take_scores(ranked, own, table, scores.reshape(many))
        within, pooled = _pooled_variances(scores)
        r_hat[q], ess[q] = np.sqrt(pooled / within), _effective_size(scores, within, pooled)
        middle = 0.5 * (ranked[(many - 1) // 2] + ranked[many // 2])
        below, above = (many - 1) // 2, (many - 1) // 2 + 1
        for i in range(many):  # from the median outwards
            if above == many or (below >= 0 and middle - ranked[below] <= ranked[above] - middle):
                away[i], below = own[below], below - 1
            else:
                away[i], above = own[above], above + 1
        for i in range(many):
            ranked[i] = abs(flat[away[i]] - middle)
        _take_scores(ranked, away, table, scores.reshape(many))
        within, pooled = _pooled_variances(scores)
        if within > 0.0:
            r_hat[q] = max(r_hat[q], np.sqrt(pooled / within))
    return r_hat, ess


@njit(cache=True, error_model="numpy")
def _take_scores(ranked, order, table, out):
    """Write the normal scores of sorted values to `out`, by mean ranks for equal values."""
    first = 0
    while first < ranked.size:
        last = first
        while last + 1 < ranked.size and ranked[last + 1] == ranked[first]:
            last += 1
        for i in range(first, last + 1):
            out[order[i]] = table[first + last]
        first = last + 1


@njit(cache=True, error_model="numpy")
def _effective_sizes(values):
    sizes = np.empty(len(values))
    for q in range(len(values)):
        within, pooled = _pooled_variances(values[q])
        sizes[q] = _effective_size(values[q].copy(), within, pooled)
    return sizes


SUMS = {"reassoc", "contract"}
"""Floating-point rewrites allowed in sums, so that several terms are added at a time."""


@njit(cache=True, error_model="numpy", fastmath=SUMS)
def _pooled_variances(values):
    """Return the mean variance within half-chains, and the pooled estimate of the variance."""
    halves, length = values.shape
    within, between, mean = 0.0, 0.0, values.mean()
    for x in values:
        own = x.mean()
        within += ((x - own) ** 2).sum() / (length - 1) / halves
        between += (own - mean) ** 2 / (halves - 1)
    return within, within * (length - 1) / length + between


@njit(cache=True, error_model="numpy", fastmath=SUMS)
def _effective_size(values, within, pooled):
    """Return the effective sample size of half-chains, which are centred in place, by Geyer's sequence."""
    halves, length = values.shape
    for x in values:
        x -= x.mean()
    least, whole = np.inf, 0.0
    for pair in range(length // 2):
        both = 0.0
        for lag in range(2 * pair, 2 * pair + 2):
            product = 0.0
            for x in values:
                for i in range(length - lag):
                    product += x[i] * x[i + lag]
            both += 1.0 - (within - product / halves / (length - 1)) / pooled
        if not both > 0.0:
            break
        least = min(least, both)
        whole += least
    total = halves * length
    return total / max(2.0 * whole - 1.0, 1.0 / math.log10(total))


def described_draws(draws: NDArray) -> dict[str, float]:
    """Return a dict of the mean and the standard deviation of draws."""
    return {"mean": float(draws.mean()), "sd": float(draws.std())}


def described_slopes(names: tuple[str, ...], slopes: NDArray) -> dict[str, dict[str, dict[str, float]]]:
    """Return a dict of the mean and standard deviation of each coefficient's draws `(..., p)`."""
    found = {name: described_draws(slopes[..., k]) for k, name in enumerate(names)}
    return {"coefficients": found} if found else {}
