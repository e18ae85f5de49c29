"""Simulation-based calibration for counts.

If the truth is drawn from the prior and the noise from its law, then the randomised probability
integral transform of the truth under its posterior is exactly uniform, and an interval covers the
truth exactly as often as its own mass says.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import kstest

FALSE_ALARM = 1e-6


def pit(posterior, group, margin, truth, rng):
    """Randomised transform from exact marginals; from draws where messages were on grids."""
    if margin not in posterior.drawn.marginals:
        draws = posterior.draws.reshape(-1, posterior.draws.shape[-1])
        return pit_of_draws(posterior.cells.sum(draws, margin)[:, group], truth, rng)
    exact = posterior.drawn.marginals[margin]
    at_most, below = exact.cdf(truth)[group], exact.cdf(truth - 1)[group]
    return below + rng.random() * (at_most - below)


def pit_of_draws(draws, truth, rng):
    """Randomised rank of the truth among draws, in 0..1."""
    below, equal = np.sum(draws < truth), np.sum(draws == truth)
    return (below + rng.random() * (equal + 1)) / (len(draws) + 1)


def uniform_p(values):
    """p-value of uniformity."""
    return kstest(values, "uniform").pvalue


def coverage_z(covered, mass):
    """Standardised difference between how often intervals covered and how often they should."""
    covered, mass = np.asarray(covered, float), np.asarray(mass, float)
    return (covered - mass).sum() / np.sqrt((mass * (1 - mass)).sum())
