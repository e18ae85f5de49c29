"""Figures of draws: mean, median, interval, and their Monte Carlo errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trueup.model.records.marginals import Columns, Reals
from trueup.model.records.quantity import quantile_at


def describe_draws(draws: NDArray, level: float, *, independent: bool, ranked: bool = True) -> Columns:
    """Describe draws `(chains, draws, k)` of any quantities.

    Parameters
    ----------
    level
        Probability of the intervals.
    independent
        Whether draws are independent; otherwise they are Markov chains, whose effective sizes are estimated.
    ranked
        Whether these are estimated by ranks; from means of batches otherwise, which takes less memory.

    Returns
    -------
    Columns `mean`, `sd`, `median`, `low`, `high`, `mass`, `mcse`, `ess`, `r_hat`; see `Posterior.summary`.

    Examples
    --------
    >>> found = describe_draws(np.arange(1, 101).reshape(1, 100, 1), 0.9, independent=True)
    >>> [float(found[name][0]) for name in ("mean", "low", "high", "mass")]
    [50.5, 5.0, 95.0, 0.91]
    """
    flat = np.sort(np.ascontiguousarray(draws.reshape(-1, draws.shape[-1]).T), axis=1, kind="stable")
    low, median, high = (
        flat[:, quantile_at(flat.shape[1], p)] for p in ((1 - level) / 2, 0.5, (1 + level) / 2)
    )
    r_hat, ess = _diagnostics(draws, independent, ranked)
    sd = flat.std(axis=1)
    return {
        "mean": flat.mean(axis=1),
        "sd": sd,
        "median": median,
        "low": low,
        "high": high,
        "mass": ((flat >= low[:, None]) & (flat <= high[:, None])).mean(axis=1),
        "mcse": sd / np.sqrt(ess),
        "ess": ess,
        "r_hat": r_hat,
    }


def _diagnostics(draws: NDArray, independent: bool, ranked: bool) -> tuple[Reals, Reals]:
    if independent:
        return np.full(draws.shape[-1], np.nan), np.full(draws.shape[-1], float(np.prod(draws.shape[:2])))
    from trueup.kernel.statistics.diagnostics import diagnose, diagnose_means

    return diagnose(draws) if ranked else diagnose_means(draws)


def described_where_defined(draws: NDArray, describe: Callable[[NDArray], Columns]) -> Columns:
    """Describe columns of draws `(chains, draws, k)` over the draws that are not NaN."""
    gaps = np.isnan(draws)
    columns = describe(np.where(gaps, 0.0, draws))
    for k in np.flatnonzero(gaps.any(axis=(0, 1))):
        known = [chain[~gap] for chain, gap in zip(draws[..., k], gaps[..., k])]
        shortest = min(map(len, known))
        own = describe(np.array([chain[:shortest] for chain in known])[..., None]) if shortest else {}
        for name, column in columns.items():
            column[k] = own[name][0] if shortest else np.nan
    return columns
