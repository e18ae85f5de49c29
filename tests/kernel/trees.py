"""Hypothesis strategies of small trees: ragged, single children, exact and unmeasured nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

VARIANCES = [0.5, 1.0, 1.0, 2.0, 7.0, 200.0]


@st.composite
def tree(draw, most_leaves: int = 8):
    """A random tree in level order as a child pointer."""
    counts: list[int] = []
    nodes, leaves = 1, 1
    while len(counts) < nodes:
        most = min(3, most_leaves - leaves + 1)
        k = draw(st.integers(0, most)) if nodes < 4 * most_leaves else 0
        counts.append(k)
        nodes += k
        leaves += max(k - 1, 0)
    return np.concatenate([[1], 1 + np.cumsum(counts)]).astype(np.int64)


@st.composite
def problem(draw, most_leaves: int = 8, exact: bool = True, unmeasured: bool = True):
    """A tree, its variances and consistent noisy integer measurements (exact values come from a truth)."""
    child_ptr = draw(tree(most_leaves))
    n = child_ptr.size - 1
    choices = VARIANCES + [0.0] * exact + [np.inf] * unmeasured
    variance = np.array(draw(st.lists(st.sampled_from(choices), min_size=n, max_size=n)))
    truth = np.array(draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 40]), min_size=n, max_size=n)), float)
    for v in reversed(range(n)):
        if child_ptr[v] < child_ptr[v + 1]:
            truth[v] = truth[child_ptr[v] : child_ptr[v + 1]].sum()
    noise = np.array(draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)), float)
    return child_ptr, variance, np.where(variance == 0, truth, truth + noise)
