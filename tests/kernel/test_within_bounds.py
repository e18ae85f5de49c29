"""Probabilities that counts of a total keep bounds: against all counts listed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from tests.reference.histograms_listed import log_totals
from trueup.kernel.table_walks.within_bounds import log_within_bounds

TOLERANCE = 0.3
"""Nats that the saddle point of a few small counts may be off, below the largest total; no wrong version is as near."""


def listed(middles, leaves, bound, a, least=0):
    """Log probability of each total's counts to lie within bounds."""
    most = leaves * bound
    each = np.array([x for x in product(range(most + 1), repeat=leaves) if sum(x) <= most])
    log, total = log_totals(each, middles, (a, a)), each.sum(axis=1)
    kept = ((least <= each) & (each <= bound)).all(axis=1)
    return np.array(
        [
            logsumexp(log[(total == t) & kept]) - logsumexp(log[total == t])
            for t in range(least * leaves, most + 1)
        ]
    )


def found(middles, leaves, bound, a, least=0):
    """The same by saddle points."""
    sizes = np.array(middles or (), np.int64)
    inner = 1 + len(sizes)
    ends = inner + np.cumsum([0, *sizes]) if middles else np.array([inner + leaves])
    child_ptr = np.concatenate([[1], ends, np.full(leaves, inner + leaves)])
    level_ptr = np.array([0, 1, *([inner] if middles else []), inner + leaves])
    high = np.concatenate([[leaves * bound], sizes * bound, np.full(leaves, bound)]).astype(np.int64)
    low = least * high // bound
    at, log = log_within_bounds(level_ptr, child_ptr, low, high, np.full(len(level_ptr) - 2, a))
    return np.interp(np.arange(least * leaves, leaves * bound + 1), at, log)


@pytest.mark.parametrize("a", [0.3, 0.7, 3.0])
@pytest.mark.parametrize(("middles", "leaves", "bound"), [((), 4, 3), ((2, 2), 4, 3), ((1, 3), 4, 3)])
def test_probabilities_are_those_of_all_counts_listed(middles, leaves, bound, a):
    ours, theirs = found(middles, leaves, bound, a), listed(middles, leaves, bound, a)
    assert np.abs(ours - theirs)[:-1].max() < TOLERANCE
    for wrong in (
        found(middles, leaves, bound, 10 * a),
        found(middles, leaves, bound + 1, a)[: len(ours)],
        0.0,
    ):
        assert np.abs(wrong - theirs)[:-1].max() > TOLERANCE


@pytest.mark.parametrize("a", [0.3, 3.0])
@pytest.mark.parametrize("middles", [(), (2, 2)])
def test_so_are_those_of_lower_bounds(middles, a):
    ours, theirs = found(middles, 4, 3, a, least=1), listed(middles, 4, 3, a, least=1)
    assert np.abs(ours - theirs)[1:-1].max() < TOLERANCE
    for wrong in (found(middles, 4, 3, 10 * a, least=1), found(middles, 4, 3, a)[4:], 0.0):
        assert np.abs(wrong - theirs)[1:-1].max() > TOLERANCE
