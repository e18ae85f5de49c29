"""Small trees with their laws, for the tests of messages."""

from __future__ import annotations

import numpy as np
from scipy.stats import chisquare

from trueup.kernel.messages.pmf import OPEN
from trueup.layouts.factors import FactorTable
from trueup.model.prior import Flat
from trueup.noise import law_named

LAWS = {
    "discrete-laplace": law_named("discrete-laplace")("1/2"),
    "discrete-gaussian": law_named("discrete-gaussian")("9/4"),
    "truncated-geometric": law_named("truncated-geometric")("1/2", 12),
    "laplace": law_named("laplace")("3"),
    "gaussian": law_named("gaussian")("4"),
}


def leaves_of(child_ptr):
    return np.flatnonzero(child_ptr[1:] == child_ptr[:-1])


def build(child_ptr, measured, *, prior=None, lower=None, upper=None, depth=80.0):
    """Factors from `{node: [(law, value), ...]}` with counts at least 0."""
    n = len(child_ptr) - 1
    low = np.zeros(n, np.int64) if lower is None else lower
    high = np.full(n, OPEN) if upper is None else upper
    table = FactorTable(low, high)
    for node, known in measured.items():
        for law, value in known:
            table.add_law(law, np.array([node]), np.array([value]), depth)
    table.add_prior(prior or Flat(), leaves_of(child_ptr), depth)
    return table.build()


def logs(measured, extra=None):
    """The same knowledge as plain functions."""
    known = {v: (lambda x, k=k: sum(law.logpmf(value - x) for law, value in k)) for v, k in measured.items()}
    return known | (extra or {})


def p_value(draws, nodes, mass):
    """Chi-square of joint draws of leaves against enumeration, rare vectors pooled."""
    keys = {tuple(row): k for k, row in enumerate(nodes)}
    counts = np.bincount([keys[tuple(row)] for row in draws], minlength=len(nodes))
    often = mass * len(draws) >= 10
    observed = np.append(counts[often], counts[~often].sum())
    return chisquare(observed, np.append(mass[often], mass[~often].sum()) * len(draws)).pvalue
