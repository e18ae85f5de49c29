"""Messages up a tree of counts on grids and back down: marginals, evidence and joint draws.

One file: the two sweeps and the draws that follow them down read the same arrays.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.grids import convolve_at, log_spacings, parabolas, reflected, slope_and_scale
from trueup.kernel.messages import PairPlan

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

PAIRS_A_CALL = 1 << 22
"""Pairs of points after which compiled code returns to Python, which can then be interrupted: some hundredths of a second."""


class Grids(NamedTuple):
    """The grid points of every node.

    Attributes
    ----------
    plan
        The tree's families split into pairs (`trueup.kernel.messages`); the first nodes are the tree's own.
    ptr, x
        Points of node `v` are `x[ptr[v]:ptr[v + 1]]`, in increasing order.
    log_weight
        Logs of the points' weights.
    """

    plan: PairPlan
    ptr: Integers
    x: Integers
    log_weight: Reals


def grids_of(plan: PairPlan, ptr: Integers, x: Integers) -> Grids:
    """Return grids with their points' weights."""
    weight = np.empty(len(x))
    _all_weights(ptr, x, weight)
    return Grids(plan, ptr, x, weight)


@njit(cache=True)
def _all_weights(ptr, x, out):
    for v in range(len(ptr) - 1):
        log_spacings(x[ptr[v] : ptr[v + 1]], out[ptr[v] : ptr[v + 1]])


def grid_upward(grids: Grids, factor: Reals) -> Reals:
    """Return the log density `(points,)` of every node given all measurements at and below it.

    Parameters
    ----------
    factor
        `(points,)` log factor of every node: likelihood, bounds, splits; 0 of sums of some of a node's parts.
    """
    out = np.full(len(grids.x), -np.inf)
    at = 0
    while at < len(grids.plan.order):
        at = _up(at, grids, factor, out)
    return out


@njit(cache=True)
def _up(at, grids, factor, out):
    """Send messages up from position `at` of `plan.order` until a limit of work; return the next position."""
    plan, ptr, x = grids.plan, grids.ptr, grids.x
    work = 0
    while at < len(plan.order) and work < PAIRS_A_CALL:
        v = plan.order[at]
        a, b = plan.left[v], plan.right[v]
        own = out[ptr[v] : ptr[v + 1]]
        if a < 0:
            own[:] = 0.0
        elif b < 0:  # the same count, at the same points
            own[:] = out[ptr[a] : ptr[a + 1]]
        else:
            xa, la = x[ptr[a] : ptr[a + 1]], out[ptr[a] : ptr[a + 1]]
            xb, lb = x[ptr[b] : ptr[b + 1]], out[ptr[b] : ptr[b + 1]]
            convolve_at(xa, la, parabolas(xa, la), xb, lb, parabolas(xb, lb), x[ptr[v] : ptr[v + 1]], own)
            work += (len(xa) + len(xb)) * len(own)
        own += factor[ptr[v] : ptr[v + 1]]
        at += 1
    return at


class GridMarginals(NamedTuple):
    """The posterior of every node given all measurements.

    Attributes
    ----------
    p
        `(points,)` masses, each node's sum 1.
    slope, scale
        `(nodes,)` of the log density that parts give their sum, where its posterior is (`sums.slope_and_scale`); leaves have
        infinite scales.
    """

    p: Reals
    slope: Reals
    scale: Reals


def grid_downward(grids: Grids, factor: Reals, up: Reals) -> GridMarginals:
    """Return the posterior of every node given all measurements, or NaN if no mass is left."""
    outside, count = np.zeros(len(grids.x)), len(grids.ptr) - 1
    out = GridMarginals(np.zeros(len(up)), np.zeros(count), np.full(count, np.inf))
    at = len(grids.plan.order) - 1
    while at >= 0:
        at = _down(at, grids, factor, up, outside, out)
    return out


@njit(cache=True)
def _down(at, grids, factor, up, outside, out):
    plan, ptr, x = grids.plan, grids.ptr, grids.x
    work = 0
    while at >= 0 and work < PAIRS_A_CALL:
        v = plan.order[at]
        a, b = plan.left[v], plan.right[v]
        at -= 1
        here = slice(ptr[v], ptr[v + 1])
        _normalise(up[here] + outside[here] + grids.log_weight[here], out.p[here])
        if a < 0:
            continue
        above, ha = outside[here] + factor[here], slice(ptr[a], ptr[a + 1])
        if b < 0:
            outside[ha] = above
            continue
        out.slope[v], out.scale[v] = slope_and_scale(x[here], up[here] - factor[here], out.p[here])
        hb, curves = slice(ptr[b], ptr[b + 1]), parabolas(x[here], above)
        for own, other in ((ha, hb), (hb, ha)):
            back, log = reflected(x[other], up[other])
            convolve_at(x[here], above, curves, back, log, parabolas(back, log), x[own], outside[own])
            work += (len(back) + len(above)) * len(x[own])
    return at


@njit(cache=True)
def _normalise(log, out):
    """Write `exp(log)` to `out`, scaled to the sum 1."""
    top = log.max()
    out[:] = np.exp(log - top)
    out /= out.sum()


@njit(cache=True)
def log_evidence(grids, up):
    """Return the log of the total mass of the root, node 0."""
    own = up[: grids.ptr[1]] + grids.log_weight[: grids.ptr[1]]
    top = own.max()
    return top + math.log(np.exp(own - top).sum()) if top > -np.inf else top


def grid_draws(
    grids: Grids, up: Reals, slopes: Reals, nodes: int, draws: int, rng: np.random.Generator
) -> Integers:
    """Return joint draws `(nodes, draws)` of the first nodes, in whole numbers that add up."""
    out = np.empty((len(grids.ptr) - 1, draws), np.int64)
    plan, ptr, x, log_weight = grids.plan, grids.ptr, grids.x, grids.log_weight
    masses = np.exp(up[: ptr[1]] - up[: ptr[1]].max() + log_weight[: ptr[1]])
    _draw_root(rng, x[: ptr[1]], np.cumsum(masses), out[0])
    at = len(plan.order) - 1
    while at >= 0:
        at = _draw_down(rng, at, grids, up, slopes, out)
    return out[:nodes]


@njit(cache=True)
def _draw_root(rng, x, total, out):
    for d in range(len(out)):
        k = np.searchsorted(total, rng.random() * total[-1], side="right")
        k = min(k, len(x) - 1)
        out[d] = _near(rng, x[max(k - 1, 0)], x[k], x[min(k + 1, len(x) - 1)])


@njit(cache=True)
def _near(rng, before, at, after):
    """Draw a whole number near the grid point `at`, with a probability that falls to its neighbours."""
    left, right = max(at - before - 1, 0), max(after - at - 1, 0)
    u = rng.random() * (1.0 + 0.5 * left + 0.5 * right)
    if u < 1.0:
        return at
    if u < 1.0 + 0.5 * left:
        return at - _triangular_step(rng, left)
    return at + _triangular_step(rng, right)


@njit(cache=True)
def _triangular_step(rng, most):
    """Draw one of the steps 1 to `most` with probability proportional to `most + 1 - step`."""
    while True:
        j = 1 + int(rng.random() * most)
        if rng.random() * most < most + 1 - j:
            return min(j, most)


@njit(cache=True)
def _draw_down(rng, at, grids, up, slopes, out):
    plan, ptr, x = grids.plan, grids.ptr, grids.x
    work = 0
    while at >= 0 and work < PAIRS_A_CALL:
        v = plan.order[at]
        a, b = plan.left[v], plan.right[v]
        at -= 1
        if a < 0:
            continue
        if b < 0:
            out[a] = out[v]
            continue
        ha, hb = slice(ptr[a], ptr[a + 1]), slice(ptr[b], ptr[b + 1])
        fa = _scaled_density(x[ha], up[ha], slopes[v])
        fb = _scaled_density(x[hb], up[hb], slopes[v])
        _split_total(rng, x[ha], fa, x[hb], fb, out[v], out[a], out[b])
        work += (len(fa) + len(fb)) * out.shape[1]
    return at


@njit(cache=True)
def _scaled_density(x, log, slope):
    """Return `exp(log - slope (x - x_0))` relative to its largest value."""
    out = log - slope * (x - x[0])
    return np.exp(out - out.max())


@njit(cache=True)
def _split_total(rng, xa, fa, xb, fb, total, parts, others):
    """Draw the first part of each total, with the second as the rest, from the product of two piecewise linear densities."""
    most = len(xa) + len(xb)
    spots, sums = np.empty(most, np.int64), np.empty(most)
    last_a, last_b = len(xa) - 1, len(xb) - 1
    for d in range(len(total)):
        t = total[d]
        low, high = max(xa[0], t - xb[last_b]), min(xa[last_a], t - xb[0])
        if low > high:  # rounding at the edge of a window: as near as the windows allow
            parts[d] = min(max(low, 0), t)
            others[d] = t - parts[d]
            continue
        size = _kink_positions(xa, xb, t, low, high, spots)
        i, j, whole = 0, last_b, 0.0
        for k in range(size):
            spot = spots[k]
            while i < last_a - 1 and xa[i + 1] <= spot:
                i += 1
            while j > 1 and xb[j - 1] >= t - spot:
                j -= 1
            weight = 1.0
            weight += 0.5 * (spot - spots[k - 1] - 1) if k > 0 else 0.0
            weight += 0.5 * (spots[k + 1] - spot - 1) if k < size - 1 else 0.0
            whole += (
                weight
                * _interpolated_density(xa, fa, i, spot)
                * _interpolated_density(xb, fb, max(j - 1, 0), t - spot)
            )
            sums[k] = whole
        k = min(np.searchsorted(sums[:size], rng.random() * whole, side="right"), size - 1)
        parts[d] = _near(rng, spots[max(k - 1, 0)], spots[k], spots[min(k + 1, size - 1)])
        others[d] = t - parts[d]


@njit(cache=True)
def _kink_positions(xa, xb, t, low, high, spots):
    """Write the points at which either density has a kink to `spots` in increasing order; return how many."""
    i, j, size = 0, len(xb) - 1, 0
    while i < len(xa) or j >= 0:
        if j < 0 or (i < len(xa) and xa[i] <= t - xb[j]):
            spot = xa[i]
            i += 1
        else:
            spot = t - xb[j]
            j -= 1
        if low <= spot <= high and (size == 0 or spot > spots[size - 1]):
            spots[size] = spot
            size += 1
    return size


@njit(cache=True)
def _interpolated_density(x, f, k, at):
    """Return a piecewise linear density at a whole number between points `k` and `k + 1`."""
    if k == len(x) - 1 or at == x[k]:
        return f[k]
    share = (at - x[k]) / (x[k + 1] - x[k])
    return (1.0 - share) * f[k] + share * f[k + 1]
