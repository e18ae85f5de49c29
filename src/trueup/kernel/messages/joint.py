"""Joint draws of all counts of a tree: the root from its mass, then a split of each parent's count."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.typed import List
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import PairPlan
from trueup.kernel.messages.pmf import trim
from trueup.kernel.messages.upward import MASSES, Messages, scaled_factor

Integers = NDArray[np.int64]
SPLITS_AT_ONCE = 1 << 20
"""Splits drawn between two returns to Python, where an interruption is noticed."""


@njit(cache=True)
def _split(one, other, total, out, uniforms, chosen):
    """Draw the left part of one total for several draws, which share one cumulative sum."""
    first = max(0, total - len(other) + 1)
    last = min(len(one) - 1, total)
    running = np.empty(last - first + 1)
    acc = 0.0
    for i in range(first, last + 1):
        acc += one[i] * other[total - i]
        running[i - first] = acc
    for d in chosen:
        out[d] = first + min(np.searchsorted(running, uniforms[d] * acc, side="right"), last - first)


@njit(cache=True)
def _in_order(totals):
    """Return an order in which equal totals are adjacent."""
    if len(totals) < 2:
        return np.arange(len(totals))
    low, width = totals.min(), totals.max() - totals.min() + 1
    if width > 8 * len(totals):
        return np.argsort(totals)
    after, order = np.zeros(width, np.int64), np.empty(len(totals), np.int64)
    for total in totals:
        after[total - low] += 1
    after = np.cumsum(after)
    for d in range(len(totals) - 1, -1, -1):
        after[totals[d] - low] -= 1
        order[after[totals[d] - low]] = d
    return order


@njit(cache=True)
def _split_all(plan, v, messages, totals, rng):
    """Draw both parts of node `v` in all draws, given its totals."""
    a, b = plan.left[v], plan.right[v]
    if b < 0:
        return totals.copy(), totals
    one, other = messages.masses[a], messages.masses[b]
    base = messages.offset[a] + messages.offset[b]
    part = np.empty(len(totals), np.int64)
    uniforms = np.empty(len(totals))
    for d in range(len(totals)):
        uniforms[d] = rng.random()
    order = _in_order(totals)
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and totals[order[end]] == totals[order[begin]]:
            end += 1
        _split(one, other, totals[order[begin]] - base, part, uniforms, order[begin:end])
        begin = end
    part += messages.offset[a]
    return part, totals - part


@njit(cache=True)
def draw_root(messages, draws, rng):
    """Draw counts of the root `(1, draws)` from its mass."""
    out = np.empty((1, draws), np.int64)
    running = np.cumsum(messages.masses[0])
    for d in range(draws):
        out[0, d] = messages.offset[0] + min(
            np.searchsorted(running, rng.random() * running[-1], side="right"), len(running) - 1
        )
    return out


@njit(cache=True)
def _draw_families(v, plan, messages, out, n, rng):
    """Draw the children of nodes from `v` on, up to a limit of work; return the next node."""
    work = 0
    while v < n and work < SPLITS_AT_ONCE:
        if plan.left[v] >= 0:
            _draw_family(v, plan, messages, out, n, rng)
            work += out.shape[1] * (1 + plan.family[v + 1] - plan.family[v])
        v += 1
    return v


@njit(cache=True)
def _draw_family(v, plan, messages, out, n, rng):
    first = plan.family[v]
    inner = np.empty((plan.family[v + 1] - first, out.shape[1]), np.int64)
    for place in range(len(inner), -1, -1):
        node = v if place == len(inner) else first + place
        totals = out[v].astype(np.int64) if node == v else inner[place]
        parts = _split_all(plan, node, messages, totals, rng)
        for child, part in zip((plan.left[node], plan.right[node]), parts):
            if child >= n:
                inner[child - first] = part
            elif child >= 0:
                out[child] = part


def draw_below(
    plan: PairPlan, messages: Messages, roots: Integers, n: int, rng: np.random.Generator
) -> Integers:
    """Draw the counts of all `n` nodes, `(n, draws)`, given those of the first nodes."""
    out = np.empty((n, roots.shape[1]), roots.dtype)
    out[: len(roots)] = roots
    v = 0
    while v < n:
        v = _draw_families(v, plan, messages, out, n, rng)
    return out


@njit(cache=True)
def _best_split(one, other):
    """Return the max-sum of two log tables, and the best left part of every total."""
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
    """Return each window without those ends where the marginal mass is below `cut`."""
    low, high = offset.copy(), offset.copy()
    for v in range(len(offset)):
        first, last, _ = trim(masses[start[v] : start[v] + size[v]], cut)
        low[v] += first
        high[v] += last - 1
    return low, high


@njit(cache=True)
def best_counts(plan, tilted, n, low, high):
    """Return a most probable vector of counts, by max-product messages up the tree and choices down."""
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
