"""Pearson's chi-square test of integer noise, with its power against a wrong law."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, ncx2

ALPHA = 1e-6


def edges(law, bins: int = 60) -> np.ndarray:
    """Return upper ends of about `bins` bins of equal mass; zero keeps its own if it is not rare."""
    ends = law.quantile(np.arange(1, bins) / bins)
    if law.pmf(0) > 0.001:
        ends = np.append(ends, [-1.0, 0.0])
    ends = np.unique(ends)
    common = (law.cdf(ends) > 0.005) & (law.sf(ends) > 0.005)
    return ends[common | (ends == -1) | (ends == 0)].astype(np.int64)


def shares(cdf, ends) -> np.ndarray:
    """Return the probability of every bin under a cdf."""
    return np.diff(cdf(ends), prepend=0.0, append=1.0)


def p_value(draws, law) -> float:
    """Return the p-value of draws under the law."""
    ends = edges(law)
    seen = np.bincount(np.searchsorted(ends, draws), minlength=len(ends) + 1)
    wanted = len(draws) * shares(law.cdf, ends)
    assert wanted.min() > 20, "too few draws for the chi-square approximation"
    return float(chi2.sf(np.sum((seen - wanted) ** 2 / wanted), len(ends)))


def power(wrong_cdf, law, draws: int) -> float:
    """Return the probability that the test at level ALPHA rejects draws of a wrong law."""
    ends = edges(law)
    p, q = shares(law.cdf, ends), shares(wrong_cdf, ends)
    shift = draws * np.sum((q - p) ** 2 / p)
    return float(ncx2.sf(chi2.isf(ALPHA, len(ends)), len(ends), shift))
