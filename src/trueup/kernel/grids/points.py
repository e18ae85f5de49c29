"""Grid points of counts: widely spaced at first, then placed where the posterior has mass.

One file: where windows end, and the points within them, follow from the same marginals.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from trueup.kernel.compiled import njit
from trueup.kernel.messages import PairPlan

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

WINDOW_SCORES = 6.5
"""Standard scores at which windows end: a mass of 4e-11 lies beyond each."""
MASSLESS_SCORE = 7.0
"""Standard score of points that have no mass: where two points hold all of it, the next window spans the gaps beside them."""
WINDOW_END_SCORE = 3.7
"""Standard score of an end of a window beyond which a mass of 1e-4 is left."""
MAX_WHOLE_WINDOW = 48
"""Whole numbers of a window up to which each has a point of its own."""
GAP_RATIO = 1.3
"""Ratio of two neighbouring gaps of first grids at the lower end of a window."""
FINE, REACHED = 3.0, 12.0
"""Gaps to a standard deviation of first grids, and how many standard deviations these reach."""
FARAWAY = 1e17
"""Counts that no window reaches."""
WIDE_GAPS, SEEN = 0.3, 1e-6
"""Weight of a gap's share of a scale beside its mass, where grids are judged; and mass of gaps that are."""
MAX_ADDED_GAPS = 80.0
"""Gaps of a window, over their width in standard scores, up to which points are added where a sum's parts ask for it."""
TAIL_MASS_LEFT_OUT = 4e-11
"""Marginal mass beyond the end of a window that is left out."""


@njit(cache=True)
def pair_sums(plan, own):
    """Return a value for each node: `own` for the first nodes, and the sum over its parts for any other."""
    out = np.zeros(len(plan.left), own.dtype)
    out[: len(own)] = own
    for v in plan.order:
        if v >= len(own):
            out[v] = out[plan.left[v]] + out[plan.right[v]]
    return out


@njit(cache=True)
def only_part(plan, v):
    """Return the lowest descendant that has the same count, because each node on the way has a single part."""
    while plan.left[v] >= 0 and plan.right[v] < 0:
        v = plan.left[v]
    return v


@njit(cache=True)
def first_points(plan, low, high, middle, spread):
    """Return the initial grid of every node: offsets `ptr (nodes + 1,)` into one array `x` of all grid points.

    Parameters
    ----------
    low, high
        `(nodes,)` windows (counts).
    middle, spread
        Where counts are expected, and about how far from there (counts).
    """
    ptr, x = np.zeros(len(low) + 1, np.int64), np.empty(1 << 10, np.int64)
    size = 0
    for v in range(len(low)):
        u = only_part(plan, v)
        own = _first_of(low[u], high[u], middle[u], spread[u])
        while size + len(own) > len(x):
            x = np.concatenate((x, np.empty(len(x), np.int64)))
        x[size : size + len(own)] = own
        size += len(own)
        ptr[v + 1] = size
    return ptr, x[:size].copy()


@njit(cache=True)
def _first_of(low, high, middle, spread):
    """Return grid points around the expected value of a count."""
    if not spread < np.inf:  # nothing but bounds is known
        middle, spread = 0.5 * (low + high), (high - low) / (2.0 * REACHED)
    spread = max(spread, 1.0)
    middle = min(max(middle, float(low)), float(high))
    first = max(low, np.int64(max(middle - REACHED * spread, -FARAWAY)))
    last = min(high, np.int64(min(middle + REACHED * spread, FARAWAY)) + 1)
    if last - first < MAX_WHOLE_WINDOW:
        return np.arange(first, last + 1)
    found = [first, last]
    for k in range(int(-REACHED * FINE), int(REACHED * FINE) + 1):
        found.append(np.int64(np.rint(middle + k * spread / FINE)))
    at, gap = 0.0, 1.0
    while at < 2.0 * spread / FINE:  # towards the lower end, where small counts may have their mass
        found.append(first + np.int64(at))
        at += gap
        gap *= GAP_RATIO
    out = np.unique(np.array(found))
    return out[(out >= first) & (out <= last)]


def zoom(
    plan: PairPlan,
    ptr: Integers,
    x: Integers,
    p: Reals,
    scale: Reals,
    low: Integers,
    high: Integers,
    step: float,
) -> tuple[Integers, Integers]:
    """Return new grid points, `step` standard scores apart, where the marginal masses `p` are large.

    Parameters
    ----------
    scale
        `(nodes,)` counts on which what parts say of their sum changes.
    low, high
        `(nodes,)` beyond which no count is possible.
    """
    below, above = np.empty(len(p)), np.empty(len(p))
    ends = _outside(ptr, x, p, low, high, below, above)
    score = ndtri(np.clip(below, 1e-300, 1.0))
    score = np.where(score > 0, -ndtri(np.clip(above, 1e-300, 1.0)), score)
    score = np.clip(score, -MASSLESS_SCORE, MASSLESS_SCORE)
    return _zoomed(plan, ptr, x, score, ends, step * scale, low, high, step)


@njit(cache=True)
def _outside(ptr, x, p, low, high, below, above):
    """Write each node's mass below and above every grid point; return the ends of each node's window.

    Beyond the ends of a window, where counts are possible, masses are taken to fall on as they do there.
    """
    nodes = len(ptr) - 1
    ends = np.empty((nodes, 2), np.int64)
    for v in range(nodes):
        here = slice(ptr[v], ptr[v + 1])
        own, at = p[here], x[here]
        left, ends[v, 0] = _tail_mass(-at[::-1], own[::-1], -low[v])
        right, ends[v, 1] = _tail_mass(at, own, high[v])
        ends[v, 0] = -ends[v, 0]
        for k in range(len(own)):
            below[ptr[v] + k] = left + 0.5 * own[k]
            left += own[k]
        for k in range(len(own) - 1, -1, -1):
            above[ptr[v] + k] = right + 0.5 * own[k]
            right += own[k]
    return ends


@njit(cache=True)
def _tail_mass(x, p, high):
    """Return the extrapolated mass beyond the last point, and the position beyond which only `TAIL_MASS_LEFT_OUT` is left."""
    n = len(x)
    if n < 2 or x[n - 1] >= high:
        return 0.0, min(x[n - 1], high)
    gap = x[n - 1] - x[n - 2]
    last = max(p[n - 1] / (0.5 + 0.5 * gap), 1e-300)
    before = max(p[n - 2] / (0.5 * gap + 0.5 * (x[n - 2] - x[max(n - 3, 0)]) + 0.01), 1e-300)
    width = float(x[n - 1] - x[0])
    rate = max(math.log(before / last) / gap, 1.0 / width)
    mass = last / rate
    if mass <= TAIL_MASS_LEFT_OUT:
        return mass, x[n - 1]
    more = min(math.log(mass / TAIL_MASS_LEFT_OUT) / rate, 2.0 * width) + 1.0
    return mass, min(x[n - 1] + np.int64(more), high)


@njit(cache=True)
def _zoomed(plan, ptr, x, score, ends, widest, low, high, step):
    nodes = len(ptr) - 1
    first, last = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    for v in range(nodes):
        here = slice(ptr[v], ptr[v + 1])
        first[v], last[v] = _mass_window(x[here], score[here], ends[v], low[v], high[v])
    _with_parts(plan, ptr, x, score, first, last, low, high)
    for v in plan.order[
        ::-1
    ]:  # what one part may be, its sibling must leave room for: else each cuts off the other in turn
        a, b = plan.left[v], plan.right[v]
        if b >= 0:  # and where a sum's window is moved on, one part may make all the difference
            up, down = max(last[v] - last[a] - last[b], 0), max(first[a] + first[b] - first[v], 0)
            for own in (a, b):
                most = (last[own] - first[own]) // 4 + 1
                first[own] = max(first[own] - min(down, most), low[own])
                last[own] = min(last[own] + min(up, most), high[own])
            for own, other in ((a, b), (b, a)):
                last[own] = max(last[own], min(first[v] - first[other], high[own]))
                first[own] = min(first[own], max(last[v] - last[other], low[own]))
    for v in plan.order:  # whatever is drawn of a sum can be split
        a, b = plan.left[v], plan.right[v]
        if a >= 0:
            least, most = first[a], last[a]
            if b >= 0:
                least, most = least + first[b], most + last[b]
            first[v], last[v] = min(max(first[v], least), most), max(min(last[v], most), least)
    out_ptr, out = np.zeros(nodes + 1, np.int64), np.empty(2 * len(x) + 1024, np.int64)
    size = 0
    for v in range(nodes):
        u = only_part(plan, v)
        here = slice(ptr[u], ptr[u + 1])
        own = _points_of(x[here], score[here], first[u], last[u], low[u], widest[u], step)
        while size + len(own) > len(out):
            out = np.concatenate((out, np.empty(len(out), np.int64)))
        out[size : size + len(own)] = own
        size += len(own)
        out_ptr[v + 1] = size
    return out_ptr, out[:size].copy()


@njit(cache=True)
def _with_parts(plan, ptr, x, score, first, last, low, high):
    """Widen windows of sums in place where a part of the sum has mass beyond its own window."""
    down, up = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    for v in plan.order:
        begin, end = ptr[v], ptr[v + 1] - 1
        if score[begin] > -WINDOW_END_SCORE:
            down[v] = max(x[begin] - first[v], 0)
        if score[end] < WINDOW_END_SCORE:
            up[v] = max(last[v] - x[end], 0)
        for part in (plan.left[v], plan.right[v]):
            if part >= 0:
                down[v], up[v] = max(down[v], down[part]), max(up[v], up[part])
        if down[v] > 0:
            first[v] = min(first[v], max(x[begin] - down[v], low[v]))
        if up[v] > 0:
            last[v] = max(last[v], min(x[end] + up[v], high[v]))


@njit(cache=True)
def _mass_window(x, score, ends, low, high):
    """Return the ends of a window that contains a count except for masses beyond `WINDOW_SCORES`."""
    first = x[max(np.searchsorted(score, -WINDOW_SCORES, side="right") - 1, 0)]
    last = x[min(np.searchsorted(score, WINDOW_SCORES), len(x) - 1)]
    first = ends[0] if first == x[0] else first
    last = ends[1] if last == x[-1] else last
    if last - first < 2:  # a count alone never learns whether those beside it are possible
        first, last = first - 1, last + 1
    first = min(max(first, low), high)
    return first, max(min(last, high), first)


@njit(cache=True)
def _count_at_score(x, score, sought):
    """Return the count at a standard score, interpolated between points."""
    k = np.searchsorted(score, sought)
    if k == 0:
        return float(x[0])
    if k == len(x):
        return float(x[-1])
    share = (sought - score[k - 1]) / max(score[k] - score[k - 1], 1e-12)
    return x[k - 1] + share * (x[k] - x[k - 1])


@njit(cache=True)
def _points_of(x, score, first, last, low, widest, step):
    if last - first < MAX_WHOLE_WINDOW:
        return np.arange(first, last + 1)
    found = [first, last]
    for k in range(1, int(2 * WINDOW_SCORES / step)):
        found.append(np.int64(np.rint(_count_at_score(x, score, k * step - WINDOW_SCORES))))
    # Beyond what was seen before, gaps grow.
    _beyond(found, x[0], first, max(x[1] - x[0], 1))
    _beyond(found, x[-1], last, max(x[-1] - x[-2], 1))
    out = np.unique(np.array(found))
    return _fill_gaps(
        out[(out >= first) & (out <= last)], low, max(widest, (last - first) * step / MAX_ADDED_GAPS), step
    )


@njit(cache=True)
def _fill_gaps(x, low, widest, step):
    """Add points so that no gap exceeds `widest`, or `step` times its distance from the least count.

    Priors of parts are powers of the count near the least one.
    """
    found = [x[0]]
    for k in range(1, len(x)):
        at = float(x[k - 1])
        while at < x[k]:
            gap = min(widest, max(step * (at - low + 1.0), 1.0))
            at += gap if x[k] - at > 2.0 * gap else (x[k] - at) / math.ceil((x[k] - at) / gap)
            found.append(np.int64(at))
        found.append(x[k])
    return np.unique(np.array(found))


@njit(cache=True)
def _beyond(found, end, to, gap):
    sign = 1 if to > end else -1
    at = end
    while sign * (to - at) > 0:
        found.append(at)
        at += sign * gap
        gap *= 2


@njit(cache=True)
def coarsest(ptr, x, p, scale):
    """Return the largest marginal mass between neighbouring grid points that skip whole numbers."""
    worst = 0.0
    for v in range(len(ptr) - 1):
        for k in range(ptr[v], ptr[v + 1] - 1):
            gap, mass = x[k + 1] - x[k], 0.5 * (p[k] + p[k + 1])
            if gap > 1:
                worst = max(worst, mass)
                if mass > SEEN:
                    worst = max(worst, WIDE_GAPS * gap / scale[v])
    return worst
