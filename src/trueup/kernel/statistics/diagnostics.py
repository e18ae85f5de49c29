"""Convergence of Markov chains: split R-hat and effective sample size, all quantities in one pass.

Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), "Rank-normalization, folding, and
localization: an improved R-hat". Constant quantities (invariants) have nothing to converge: their
R-hat is 1 and their effective size the number of draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
BATCHES = 20
FEWEST = 8
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
    constant = (draws == draws[:1, :1]).all(axis=(0, 1))
    if draws.shape[1] < FEWEST:
        unknown = np.where(constant, 1.0, np.nan)
        return unknown, unknown * float(np.prod(draws.shape[:2]))
    split = _halves(draws)
    bulk = _normal_scores(split)
    folded = _normal_scores(np.abs(split - np.median(split, axis=(0, 1))))
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.maximum(_r_hat(bulk), np.nan_to_num(_r_hat(folded), nan=1.0))
        ess = _effective_size(bulk)
    return np.where(constant, 1.0, r_hat), np.where(constant, float(np.prod(draws.shape[:2])), ess)


def diagnose_means(draws: NDArray) -> tuple[Reals, Reals]:
    """Return R-hat and effective sizes of means, by split chains and batches: one pass, where ranks would take too long.

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
    if length < FEWEST:
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
    if draws.shape[1] < FEWEST:
        return diagnose(draws)[1]
    split = _halves(draws)
    total, sizes = float(np.prod(draws.shape[:2])), []
    for low in np.quantile(draws, [0.05, 0.95], axis=(0, 1), method="inverted_cdf"):
        below = (split <= low).astype(float)
        # Of whole counts more than 95 % may lie at one end: an event that is always true has no tail.
        constant = (below == below[:1, :1]).all(axis=(0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            sizes.append(np.where(constant, total, _effective_size(below)))
    return np.minimum(*sizes)


def r_hat_by_chance(quantities: int, size: float, chains: int = 8) -> float:
    """Return what the largest R-hat of many converged quantities exceeds once in a hundred times, 1.01 or more.

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


def _normal_scores(draws: NDArray) -> Reals:
    """Replace values by normal quantiles of their pooled ranks."""
    from scipy.special import ndtri
    from scipy.stats import rankdata  # slow to import, and chains alone need it

    pooled = draws.reshape(-1, draws.shape[-1])
    ranks = rankdata(pooled, axis=0)
    return ndtri((ranks - 0.375) / (len(pooled) + 0.25)).reshape(draws.shape)


def _variances(draws: Reals) -> tuple[Reals, Reals]:
    """Return the mean within-chain variance and the pooled estimate."""
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return within, within * (length - 1) / length + between


def _r_hat(draws: Reals) -> Reals:
    within, pooled = _variances(draws)
    return np.sqrt(pooled / within)


def _effective_size(draws: Reals) -> Reals:
    """Sum autocorrelations by Geyer's initial monotone sequence."""
    chains, length, _ = draws.shape
    within, pooled = _variances(draws)
    rho = 1 - (within - _autocovariance(draws).mean(axis=0) * length / (length - 1)) / pooled
    pairs = rho[: length // 2 * 2].reshape(length // 2, 2, -1).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    monotone = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    total = chains * length
    tau = np.maximum(2 * monotone.sum(axis=0) - 1, 1 / np.log10(total))
    return total / tau


def _autocovariance(draws: Reals) -> Reals:
    from scipy.fft import next_fast_len

    length = draws.shape[1]
    centred = draws - draws.mean(axis=1, keepdims=True)
    size = next_fast_len(2 * length)
    spectrum = np.fft.rfft(centred, size, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, size, axis=1)[:, :length] / length
