"""Laws and ranks that the tests of posteriors of released multinomial tables share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.stats import chi2

from trueup.noise import DiscreteLaplace

ONE, TWO, HALF, FIVE = (DiscreteLaplace(Fraction(e)) for e in ("1", "2", "1/2", "5"))


def alpha(law) -> float:
    return float(np.exp(-float(law.epsilon)))


def p_value(draws, masses, start=None):
    """Chi-square p value of independent draws (d, n) against a table of masses."""
    start = np.zeros(draws.shape[1], int) if start is None else np.asarray(start)
    at = draws - start
    inside = ((at >= 0) & (at < masses.shape)).all(axis=1)
    seen = np.zeros(masses.shape)
    np.add.at(seen, tuple(at[inside].T), 1)
    expected = masses * len(draws)
    common = expected >= 8
    rest = len(draws) - seen[common].sum(), len(draws) - expected[common].sum()
    statistic = ((seen - expected)[common] ** 2 / expected[common]).sum() + (rest[0] - rest[1]) ** 2 / max(
        rest[1], 8
    )
    return chi2.sf(statistic, common.sum())


def ranks_within(draws, true, rng):
    """Ranks of true counts among draws (d, n), ties broken at random."""
    below, ties = (draws < true).sum(axis=0), (draws == true).sum(axis=0)
    return below + rng.integers(0, ties + 1)


def uniform_p_value(ranks):
    """Chi-square p value of ranks 0..31, in eight classes."""
    seen = np.bincount(np.array(ranks) // 4, minlength=8)
    expected = len(ranks) / 8
    return chi2.sf(((seen - expected) ** 2 / expected).sum(), 7)
