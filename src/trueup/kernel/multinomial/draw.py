"""Draws from multinomial distributions: one vector, or a whole tree from the top.

A multinomial draw is a chain of binomials: cell `i` takes `Binomial(left, N_i / (N_i + ... + N_S))`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import SpecError
from trueup.kernel.compiled import njit
from trueup.kernel.multinomial.apportion import EMPTY, INFEASIBLE, OK, propagate_exact
from trueup.kernel.multinomial.mode import (
    Empty,
    Integers,
    as_counts,
    as_trials,
    is_uniform,
    refuse_contradictory_totals,
    refuse_groups,
)


def multinomial_draw_tree(
    child_ptr: ArrayLike,
    weights: ArrayLike,
    total: int,
    rng: np.random.Generator,
    *,
    exact: ArrayLike | None = None,
    empty: Empty = "error",
    label: Callable[[int], str] = "node {}".format,
) -> Integers:
    """Draw counts on a tree: each parent's count is split among its children by a multinomial draw.

    Parameters
    ----------
    child_ptr, weights, total
        As in `trueup.kernel.multinomial.mode.multinomial_mode_tree`.
    rng
        Source of randomness; post-processing only.
    exact
        Counts known exactly, -1 elsewhere, shape (n,). All or none of a drawn node's descendants
        on a path may be exact only where the node itself then is.
    empty
        As in `multinomial_draw`, for each parent.
    label
        How to name a node in an error.

    Returns
    -------
    ndarray of int64, shape (n,)

    Raises
    ------
    InfeasibleError
        Exact counts that contradict each other or the total; a parent without weights below it.
    SpecError
        An exact count below a node that is itself drawn: a draw could fall under it.

    Notes
    -----
    Wang (2020), section 3.1.1, step 5, applied to each parent from the top.

    Examples
    --------
    >>> counts = multinomial_draw_tree([1, 3, 5, 5, 5, 5], [0, 1, 9, 4, 4], 11, np.random.default_rng(1))
    >>> bool(counts[1] + counts[2] == 11 and counts[3] + counts[4] == counts[1])
    True
    """
    weights, child_ptr = as_counts(weights, "weights"), np.asarray(child_ptr, np.int64)
    known = np.full(weights.size, -1, np.int64) if exact is None else np.asarray(exact, np.int64)
    least, fixed = np.zeros_like(weights), known >= 0
    refuse_contradictory_totals(propagate_exact(child_ptr, known, least, fixed), label)
    if (least[~fixed] > 0).any():
        raise SpecError(
            "an exact count lies below a count that is drawn, and a multinomial draw could fall under it",
            needed="exact counts for all parts of a total, or none below it",
            remedy="use multinomial-mode, which keeps such bounds",
        )
    counts = np.empty_like(weights)
    counts[0] = least[0] if fixed[0] else as_trials(total)
    node, status = _draw_tree(child_ptr, weights, least, fixed, is_uniform(empty), rng, counts)
    if status != OK:
        refuse_groups(status, label(node))
    return counts


@njit(cache=True)
def _draw_tree(child_ptr, weights, least, fixed, uniform, rng, counts):
    """Draw in level order: a parent's count is settled before its children's."""
    for v in range(weights.size):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first < last:
            status = _draw_split(first, last, counts[v], weights, least, fixed, uniform, rng, counts)
            if status != OK:
                return v, status
    return -1, OK


@njit(cache=True)
def _draw_split(first, last, trials, weights, least, fixed, uniform, rng, counts):
    """Draw the split of `trials` among the children that are not fixed."""
    left, weight, free = trials, 0, 0
    for i in range(first, last):
        if fixed[i]:
            counts[i] = least[i]
            left -= least[i]
        else:
            weight += weights[i]
            free += 1
    if left < 0 or (free == 0 and left > 0):
        return INFEASIBLE
    even = weight == 0
    if even and left > 0 and not uniform:
        return EMPTY
    for i in range(first, last):
        if fixed[i]:
            continue
        share = 1.0 / free if even else (weights[i] / weight if weight > 0 else 0.0)
        counts[i] = rng.binomial(left, min(share, 1.0)) if left > 0 else 0
        left -= counts[i]
        free -= 1
        weight -= 0 if even else weights[i]
    return OK
