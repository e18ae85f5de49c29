"""Tilts that bring every message of a tree to where the posterior is.

Multiplying each leaf's factor by `exp(s_i x_i)` and each inner node's by `exp(-lambda_a x_a)`, with
`s_i` the sum of `lambda_a` over the ancestors of `i`, changes nothing: a node is the sum of its
leaves. It changes where the messages live. Sums of parts that cannot be negative sit above a
precise total, often by many standard deviations; untilted windows would have to reach that far
into their tails, and below 1e-308. The best tilt minimises

    Phi(lambda) = sum_leaves log M_i(s_i) + sum_inner log M_a(-lambda_a),

M the moment generating function of a factor: convex, an upper bound on the log evidence, and the
saddlepoint of the sum. A Newton step is a least-squares problem on the tree, solved exactly by one
sweep up and one down. Any tilt gives the same posterior, so a few damped steps are enough.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages.pmf import log_factor, moments, split_slope, uniform_moments

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
WIDEST_TABLE = 1 << 16
PIECE = 1 << 22
"""Entries of tables between two returns to Python, where an interruption is heard: some tenths of a second."""
RESTING = 0.01
"""Standard deviations by which a family's sum may be off before its tilt is moved."""
STEPS, FEW_STEPS = 200, 10
"""Newton steps from no tilt, and from one that served a problem near by."""
GAIN = 1e-4
"""Gain in Phi (nats) for each node below which tilts are good enough."""


@njit(cache=True)
def bounds(child_ptr, lower, upper):
    """Return the windows that additivity leaves of `lower`, `upper`, in two sweeps.

    A window that comes out empty (low > high) shows that no counts fit.
    """
    low, high = lower.copy(), upper.copy()
    n = len(low)
    for v in range(n - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first < last:
            low[v] = max(low[v], _total(low, first, last))
            high[v] = min(high[v], _total(high, first, last))
    for v in range(n):
        first, last = child_ptr[v], child_ptr[v + 1]
        _tighten(low, high, v, first, last)
    return low, high


@njit(cache=True)
def _total(values, first, last):
    """Sum bounds; anything past `OPEN` is open."""
    total = 0
    for c in range(first, last):
        total += values[c]
        if abs(values[c]) >= np.int64(1) << 60:
            return values[c]
    return total


@njit(cache=True)
def _tighten(low, high, v, first, last):
    """Bound each child by its parent's bound less the other children's opposite bounds."""
    floor, ceiling, open_floor, open_ceiling = 0, 0, 0, 0
    wide = np.int64(1) << 60
    for c in range(first, last):
        open_floor += low[c] <= -wide
        open_ceiling += high[c] >= wide
        floor += low[c] if low[c] > -wide else 0
        ceiling += high[c] if high[c] < wide else 0
    for c in range(first, last):
        old_low, old_high = low[c], high[c]
        if open_floor - (old_low <= -wide) == 0 and high[v] < wide:
            others = floor - (old_low if old_low > -wide else 0)
            high[c] = min(old_high, high[v] - others)
        if open_ceiling - (old_high >= wide) == 0 and low[v] > -wide:
            others = ceiling - (old_high if old_high < wide else 0)
            low[c] = max(old_low, low[v] - others)


@njit(cache=True)
def factor_moments(factors, v, low, high, slope):
    """Return log sum, maximum, mean and variance of a node's tilted factor on `low..high`."""
    free = factors.ptr[v] == factors.ptr[v + 1] and factors.alpha[v] == factors.total[v]
    if free and high - low > WIDEST_TABLE:
        return uniform_moments(slope, low, high)
    log_sum, top, mean, variance = moments(log_factor(factors, v, low, high - low + 1, slope))
    return log_sum, top, low + mean, variance


@njit(cache=True)
def has_factor(child_ptr, factors):
    """Mark the inner nodes that carry a factor of their own."""
    wide = np.int64(1) << 60
    inner = child_ptr[1:] > child_ptr[:-1]
    measured = factors.ptr[1:] > factors.ptr[:-1]
    split = factors.alpha != factors.total
    return inner & (measured | split | (factors.lower > -wide) | (factors.upper < wide))


@njit(cache=True)
def steepest(factors, v, low, high, floor, ceiling):
    """Return the least and the largest slope at which a node's tilted factor still falls beyond its tables.

    At nine tenths of the slope of an open-ended law at its table's edge, so that what is beyond stays small. The slope
    of a split's factor does not count: it tends to 0 on the right, and on the left it ends at 0.
    """
    least, most = -np.inf, np.inf
    for k in range(factors.ptr[v], factors.ptr[v + 1]):
        table, base = factors.table[k], factors.base[k]
        if factors.open_ended[table] and high > low:
            end = base + factors.start[table + 1] - factors.start[table] - 1
            if base == low and low > floor:
                edge = log_factor(factors, v, low, 2, 0.0)
                least = max(least, -0.9 * (edge[1] - edge[0] - split_slope(factors, v, low)))
            if end == high and high < ceiling:
                edge = log_factor(factors, v, high - 1, 2, 0.0)
                most = min(most, 0.9 * (edge[0] - edge[1] + split_slope(factors, v, high - 1)))
    return least, most


class TiltState(NamedTuple):
    """Tilts and the moments of the factors under them, node by node.

    Attributes
    ----------
    tau
        (n,) tilt below each node, and `slope` (n,) of its own factor; NaN while not evaluated.
    log_sum, top, mean, variance
        (n,) of the factors under their slopes; 0 for sums without a factor.
    """

    tau: Reals
    slope: Reals
    log_sum: Reals
    top: Reals
    mean: Reals
    variance: Reals


def at_rest(n: int, tau: Reals | None = None) -> TiltState:
    """Return a state that is not evaluated, with these tilts or none."""
    zeros = [np.zeros(n) for _ in range(4)]
    return TiltState(np.zeros(n) if tau is None else tau, np.full(n, np.nan), *zeros)


@njit(cache=True)
def _evaluate(first_node, end, child_ptr, factors, informs, low, high, parent_tau, state):
    """Bring the moments of nodes up to date with the tilts; those whose slope is as it was are left alone."""
    for v in range(first_node, end):
        leaf = child_ptr[v] == child_ptr[v + 1]
        slope = parent_tau[v] if leaf else parent_tau[v] - state.tau[v]
        if slope != state.slope[v]:
            state.slope[v] = slope
            if leaf or informs[v]:
                values = factor_moments(factors, v, low[v], high[v], slope)
                state.log_sum[v], state.top[v], state.mean[v], state.variance[v] = values


def evaluate(child_ptr, factors, informs, low, high, pieces: Integers, state: TiltState) -> float:
    """Bring a state up to date with its tilts, by runs of nodes; return Phi."""
    above = inherit(child_ptr, state.tau)
    for first, end in pairwise(pieces):
        _evaluate(first, end, child_ptr, factors, informs, low, high, above, state)
    return float(state.log_sum.sum())


def pieces_of(factors, low: Integers, high: Integers) -> Integers:
    """Return the edges of runs of nodes with no more than `PIECE` entries to evaluate, or a single node's."""
    entries = (high - low + 1).astype(float)
    free = (factors.ptr[1:] == factors.ptr[:-1]) & (factors.alpha == factors.total)
    entries[free] = np.minimum(entries[free], WIDEST_TABLE)  # a sum in closed form beyond
    cuts = np.flatnonzero(np.diff(np.cumsum(entries) // PIECE)) + 1
    return np.concatenate([[0], cuts, [len(low)]]).astype(np.int64)


@njit(cache=True)
def inherit(child_ptr, tau):
    """Return, for each node, the tilt of its parent (0 for the root)."""
    parent_tau = np.zeros(len(tau))
    for v in range(len(tau)):
        for c in range(child_ptr[v], child_ptr[v + 1]):
            parent_tau[c] = tau[v]
    return parent_tau


@njit(cache=True)
def tilts(child_ptr, slope):
    """Return the tilt below every inner node, given the slopes of all nodes' own factors."""
    tau = np.zeros(len(slope))
    parent_tau = np.zeros(len(slope))
    for v in range(len(slope)):
        if child_ptr[v] < child_ptr[v + 1]:
            tau[v] = parent_tau[v] - slope[v]
            for c in range(child_ptr[v], child_ptr[v + 1]):
                parent_tau[c] = tau[v]
    return tau


@njit(cache=True)
def limits(child_ptr, factors, low, high, floor, ceiling):
    """Return `least`, `most` (n,): of a leaf, the tilt above it; of an inner node, its own slope."""
    least, most = np.empty(len(low)), np.empty(len(low))
    for v in range(len(low)):
        least[v], most[v] = steepest(factors, v, low[v], high[v], floor[v], ceiling[v])
    return least, most


@njit(cache=True)
def _newton(child_ptr, informs, least, most, tau, parent_tau, mean, variance):
    """Solve the tree's least-squares problem for the tilt below every inner node."""
    n = len(tau)
    value, spread = mean.copy(), variance.copy()
    below_mean, below_var, widest = np.zeros(n), np.zeros(n), np.zeros(n)
    for v in range(n - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            value[v] = mean[v] - variance[v] * parent_tau[v]
            continue
        for c in range(first, last):
            below_mean[v] += value[c]
            below_var[v] += spread[c]
            widest[v] = max(widest[v], spread[c])
        if informs[v]:
            own = mean[v] + variance[v] * (tau[v] - parent_tau[v])
            weight = below_var[v] / max(below_var[v] + variance[v], 1e-300)
            value[v] = below_mean[v] + weight * (own - below_mean[v])
            spread[v] = weight * variance[v]
        else:
            value[v], spread[v] = below_mean[v], below_var[v]
    fresh, parent = np.zeros(n), np.zeros(n)
    for v in range(n):
        # the estimate of v given everything is value + spread * (tilt from above)
        estimate = value[v] + spread[v] * parent[v]
        informed = informs[v] and below_var[v] > 1e-9
        fresh[v] = (estimate - below_mean[v]) / below_var[v] if informed else parent[v]
        if informed:
            # A tilt by more than one standard deviation of a part leaves the range where the model holds: among many
            # nodes a few such steps would shorten the step of all.
            reach = 1.0 / np.sqrt(widest[v])
            fresh[v] = min(max(fresh[v], tau[v] - reach), tau[v] + reach)
            # Beyond these the tilted law of v, or of a leaf below it, would rise where its table ends.
            fresh[v] = min(max(fresh[v], parent[v] - most[v]), parent[v] - least[v])
            for c in range(child_ptr[v], child_ptr[v + 1]):
                if child_ptr[c] == child_ptr[c + 1]:
                    fresh[v] = min(max(fresh[v], least[c]), most[c])
            # A family whose sum is where it should be, to a hundredth of its standard deviation, may rest.
            if parent[v] == parent_tau[v] and abs(fresh[v] - tau[v]) * np.sqrt(below_var[v]) < RESTING:
                fresh[v] = tau[v]
        for c in range(child_ptr[v], child_ptr[v + 1]):
            parent[c] = fresh[v]
    return fresh


@njit(cache=True)
def first_tilts(child_ptr, factors):
    """Return the tilts at which the parts of each split are negative binomial with the mean that was measured.

    Given its count X, the parts of a node with `total` A are like negative binomials of success X / (X + A). X is the
    middle of the node's first table, or the sum of its parts'; nodes without a split are not tilted.
    """
    n = len(child_ptr) - 1
    about, tau = np.zeros(n), np.zeros(n)
    for v in range(n - 1, -1, -1):
        for c in range(child_ptr[v], child_ptr[v + 1]):
            about[v] += about[c]
        if factors.ptr[v] < factors.ptr[v + 1]:
            k = factors.ptr[v]
            table = factors.table[k]
            about[v] = factors.base[k] + (factors.start[table + 1] - factors.start[table]) // 2
        about[v] = min(max(about[v], factors.lower[v], 0.5), max(float(factors.upper[v]), 0.5))
        if child_ptr[v] < child_ptr[v + 1] and factors.total[v] != 1.0:
            tau[v] = np.log(about[v] / (about[v] + factors.total[v]))
    return tau


def find_tilts(child_ptr, factors, windows, tau: Reals | None = None) -> TiltState:
    """Return tilts near the best ones, with the moments of all factors under them.

    Damped Newton steps on the convex Phi of the module's note, from `tau` or from no tilt at all, until a step gains
    less than `GAIN` a node. Python is returned to between steps, and within them, so an interruption is heard.

    Parameters
    ----------
    windows
        low, high, floor, ceiling `(n,)` of every node, as `Tilted` has them.
    """
    low, high, floor, ceiling = windows
    informs = has_factor(child_ptr, factors)
    least, most = limits(child_ptr, factors, low, high, floor, ceiling)
    pieces = pieces_of(factors, low, high)
    state = at_rest(len(low), first_tilts(child_ptr, factors) if tau is None else tau)
    phi = evaluate(child_ptr, factors, informs, low, high, pieces, state)
    for _ in range(STEPS if tau is None else FEW_STEPS):
        above = inherit(child_ptr, state.tau)
        moments_of = state.mean, state.variance
        step = _newton(child_ptr, informs, least, most, state.tau, above, *moments_of) - state.tau
        trial, fresh = _shortened(child_ptr, factors, informs, low, high, pieces, state, step, phi)
        if trial is None:
            break
        state, gained, phi = trial, phi - fresh, fresh
        if gained < GAIN * len(low):
            break
    return state


def _shortened(
    child_ptr, factors, informs, low, high, pieces, state, step, phi
) -> tuple[TiltState | None, float]:
    """Halve a step until Phi falls."""
    size = 1.0
    while size > 1e-6 and step.any():
        trial = TiltState(state.tau + size * step, *(field.copy() for field in state[1:]))
        fresh = evaluate(child_ptr, factors, informs, low, high, pieces, trial)
        if fresh <= phi:
            return trial, fresh
        size *= 0.5
    return None, phi
