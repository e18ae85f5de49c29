"""Most probable vectors of counts of a tree: maxima up, choices down."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.typed import List

from trueup.kernel.compiled import njit
from trueup.kernel.messages.pmf import trim
from trueup.kernel.messages.upward import MASSES, scaled_factor


@njit(cache=True)
def _best_split(one, other):
    """Return the max-sum of two log tables and, for every total, the best left part."""
    size = len(one) + len(other) - 1
    best, choice = np.full(size, -np.inf), np.zeros(size, np.int64)
    for i in range(len(one)):
        for j in range(len(other)):
            value = one[i] + other[j]
            if value > best[i + j]:
                best[i + j], choice[i + j] = value, i
    return best, choice


@njit(cache=True)
def narrow(offset, start, size, masses, cut):
    """Return each window without the ends whose marginal mass is below `cut`."""
    low, high = offset.copy(), offset.copy()
    for v in range(len(offset)):
        first, last, _ = trim(masses[start[v] : start[v] + size[v]], cut)
        low[v] += first
        high[v] += last - 1
    return low, high


@njit(cache=True)
def best_counts(plan, tilted, n, low, high):
    """Return a most probable vector: max-product up, choices down, with every count on its window."""
    total = len(plan.left)
    logs, choices = List.empty_list(MASSES), List.empty_list(types.int64[::1])
    for _ in range(total):
        logs.append(np.zeros(1))
        choices.append(np.zeros(1, np.int64))
    offset = np.zeros(total, np.int64)
    for v in plan.order:
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            offset[v] = low[v]
            logs[v] = scaled_factor(tilted, v, low[v], high[v] - low[v] + 1)
            continue
        one = logs[a]
        if b < 0:
            best, choice = one.copy(), np.arange(len(one))
            offset[v] = offset[a]
        else:
            best, choice = _best_split(one, logs[b])
            offset[v] = offset[a] + offset[b]
        if v < n:
            first = max(low[v] - offset[v], 0)
            last = min(high[v] - offset[v] + 1, len(best))
            best, choice = best[first:last].copy(), choice[first:last].copy()
            offset[v] += first
            if tilted.informs[v]:
                best += scaled_factor(tilted, v, offset[v], len(best))
        logs[v], choices[v] = best, choice
    counts = np.zeros(total, np.int64)
    counts[0] = offset[0] + np.argmax(logs[0])
    for place in range(total - 1, -1, -1):
        v = plan.order[place]
        a, b = plan.left[v], plan.right[v]
        if a >= 0:
            counts[a] = offset[a] + choices[v][counts[v] - offset[v]]
        if b >= 0:
            counts[b] = counts[v] - counts[a]
    return counts[:n]
