"""Marginals and messages from above, averaged over several solutions of one tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages.upward import array_of

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Exact = tuple[Integers, Integers, Reals]
"""Marginals as `trueup.kernel.messages.solve.marginals` has them."""


def mixed(parts: Sequence[Exact], weights: Reals) -> Exact:
    """Return the weighted mean of marginals, on windows that hold all of theirs; weights are `(parts,)`, or `(parts, n)`.

    Examples
    --------
    >>> one, other = (np.array([0, 1]), np.array([3]), np.ones(1)), (np.array([0, 1]), np.array([5]), np.ones(1))
    >>> start, offset, masses = mixed([one, other], np.array([0.25, 0.75]))
    >>> start.tolist(), offset.tolist(), masses.tolist()
    ([0, 3], [3], [0.25, 0.0, 0.75])
    """
    low = np.min([offset for _, offset, _ in parts], axis=0)
    high = np.max([offset + np.diff(start) for start, offset, _ in parts], axis=0)
    begin = np.concatenate([[0], np.cumsum(high - low)])
    out = np.zeros(begin[-1])
    for (start, offset, masses), weight in zip(parts, weights):
        _add(begin, low, out, start, offset, masses, np.broadcast_to(weight, len(low)))
    return begin, low, out


@njit(cache=True)
def _add(begin, low, out, start, offset, masses, weights):
    for v in range(len(low)):
        at = begin[v] + offset[v] - low[v]
        for i in range(start[v], start[v + 1]):
            out[at + i - start[v]] += weights[v] * masses[i]


def mixed_above(
    offsets: Sequence[Integers], above: Sequence[Sequence[Reals]], weights: Reals, nodes: slice
) -> tuple[Integers, list[Reals]]:
    """Return the weighted mean of the messages from above some nodes to their counts.

    Parameters
    ----------
    offsets, above
        Of each solution: the count at which every node's window starts, and its messages down.
    nodes
        Which nodes.

    Returns
    -------
    offset, above
        Of these nodes.
    """
    at = range(nodes.start, nodes.stop)
    low = np.min([offset[nodes] for offset in offsets], axis=0)
    out = []
    for k, v in enumerate(at):
        each = [array_of(down, v) for down in above]
        ends = [int(offset[v] - low[k]) + len(one) for offset, one in zip(offsets, each)]
        total = np.zeros(max(ends))
        for one, weight, end in zip(each, weights, ends):
            total[end - len(one) : end] += weight * one
        out.append(total)
    return low, out
