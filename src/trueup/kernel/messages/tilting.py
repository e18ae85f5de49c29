"""Tilts (exponential tilting) that centre every message of a tree on the posterior.

Multiplying each leaf's factor by `exp(s_i x_i)` and each inner node's by `exp(-lambda_a x_a)`, with
`s_i` the sum of `lambda_a` over the ancestors of `i`, changes nothing: a node is the sum of its
leaves. It changes where the messages live. Sums of parts that cannot be negative sit above a
precise total, often by many standard deviations; untilted windows would have to reach that far
into their tails, and below 1e-308.

Good tilts make the sum of a node's parts, under the tilt, what the posterior says of it. They are found by steps on
a normal approximation. Up: mean and variance of a leaf's tilted factor, exactly; of an inner node, those of its own
tilted factor times a normal law of the sum of its parts. Down: what each node is given all others, and the change of tilt
that moves the sum of its parts there, to first order. A node's factor alone would not do: divided by the number of ways to
split its count it may rise on both sides. Any tilt gives the same posterior, so a few steps are enough.

One file: the steps, and the moments and the windows that they rest on, are one search on the same arrays.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import log_ratio
from trueup.kernel.messages.kinds import divisors, kinds
from trueup.kernel.messages.pmf import FALLING, log_factor, moments, uniform_moments
from trueup.kernel.messages.tails import edge, law_at

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
WIDEST_TABLE = 1 << 16
ENTRIES_A_CALL = 1 << 22
"""Entries of tables between two returns to Python, where an interruption is heard: some tenths of a second."""
RESTING, TILT_TOLERANCE_SDS = 0.1, 0.5
"""Standard deviations by which a sum may be off before its tilt is moved, and at which the search ends."""
MAX_TILT_STEPS, STALLED_STEPS, STALLED = 100, 40, 0.95
"""Steps of a search; those after which it ends that came no nearer than this share of the least distance before."""
NARROW = 0.01
"""Least variance (counts squared) that a sum is taken to have: parts that all but one count contradicts still move."""
NO_TILT = np.zeros(1)
MAX_TILT_STEP = 4.0
"""Longest step of a tilt."""


@njit(cache=True)
def bounds(child_ptr, lower, upper):
    """Return the windows `lower..upper` of counts, tightened in two passes because parts add up.

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
    """Return the sum of bounds, or the first infinite one among them."""
    total = 0
    for c in range(first, last):
        total += values[c]
        if abs(values[c]) >= np.int64(1) << 60:
            return values[c]
    return total


@njit(cache=True)
def _tighten(low, high, v, first, last):
    """Tighten each child's window by its parent's window minus the other children's opposite bounds."""
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
    """Return log sum, maximum, mean and variance of a node's tilted factor on the window `low..high`."""
    free = factors.ptr[v] == factors.ptr[v + 1] and factors.alpha[v] == factors.total[v]
    if free and high - low > WIDEST_TABLE:
        return uniform_moments(slope, low, high)
    log_sum, top, mean, variance = moments(log_factor(factors, v, low, high - low + 1, slope))
    return log_sum, top, low + mean, variance


@njit(cache=True)
def has_factor(child_ptr, factors):
    """Mark the inner nodes that have a factor of their own, beside the messages of their parts."""
    wide = np.int64(1) << 60
    inner = child_ptr[1:] > child_ptr[:-1]
    measured = factors.ptr[1:] > factors.ptr[:-1]
    split = factors.alpha != factors.total
    return inner & (measured | split | (factors.lower > -wide) | (factors.upper < wide))


@njit(cache=True, _nrt=False)
def steepest(factors, v, low, high, floor, ceiling):
    """Return the smallest and largest slopes at which a node's tables still fall beyond its window.

    At nine tenths of the slope at the window's end, so that what is beyond stays small: the window of a count may end
    before its own tables do, where those of its parent or of its siblings end. The slope of a split's factor does not
    count: it tends to 0 on the right, and on the left it ends at 0.
    """
    least, most = -np.inf, np.inf
    if factors.ptr[v] < factors.ptr[v + 1]:
        _, slope, end = edge(factors, v, low, -1)
        if max(end, floor) < low and slope < 0.0:
            least = 0.9 * slope
        _, slope, end = edge(factors, v, high, 1)
        if min(end, ceiling) > high and slope < 0.0:
            most = -0.9 * slope
    return least, most


@njit(cache=True)
def certain(factors):
    """Return bounds of the counts that hold with certainty, including those of complete tables."""
    low, high = factors.lower.copy(), factors.upper.copy()
    for v in range(len(low)):
        for k in range(factors.ptr[v], factors.ptr[v + 1]):
            table = factors.table[k]
            if factors.open_ended[table] == 0.0:
                low[v] = max(low[v], factors.base[k])
                high[v] = min(high[v], factors.base[k] + factors.start[table + 1] - factors.start[table] - 1)
    return low, high


class TiltState(NamedTuple):
    """Tilts, with the moments of every node's message under these tilts.

    Attributes
    ----------
    tau
        (n,) tilt below each node, and `slope` (n,) of its own factor; NaN while not evaluated.
    top
        (n,) log of the largest value of a leaf's tilted factor; of an inner node's, that at its mean.
    mean, variance
        (n,) of the count given all that is below it.
    """

    tau: Reals
    slope: Reals
    top: Reals
    mean: Reals
    variance: Reals


@njit(cache=True)
def _leaves(first_node, end, child_ptr, factors, low, high, above, state):
    """Update the moments of the messages of those leaves whose tilt has changed."""
    for v in range(first_node, end):
        if child_ptr[v] == child_ptr[v + 1] and above[v] != state.slope[v]:
            state.slope[v] = above[v]
            _, state.top[v], state.mean[v], state.variance[v] = factor_moments(
                factors, v, low[v], high[v], above[v]
            )


@njit(cache=True, _nrt=False)
def _log_at(factors, v, slope, count, mean, variance):
    """Return the log at one count of a node's tilted factor times a normal density of its parts' sum."""
    log = max(law_at(factors, v, count), -1e9) + slope * count
    if factors.alpha[v] != factors.total[v]:
        log += log_ratio(count, factors.alpha[v], factors.total[v])
    return log - 0.5 * (count - mean) ** 2 / variance


@njit(cache=True)
def _middle(factors, v, slope, mean, variance, least, most):
    """Return approximate mean and variance of a node's tilted factor times a normal law for the sum of its parts.

    The product has one peak. Two nats below it are two standard deviations of a normal law.
    """
    if least >= most:
        return float(least), 0.0
    variance = max(variance, NARROW)
    step = max(np.int64(math.sqrt(variance)), 1)
    low = np.int64(min(max(math.floor(mean), float(least)), float(most)))
    high = low
    move = step
    while low > least and _rises(factors, v, slope, low, mean, variance) < 0:
        low, move = max(low - move, least), 2 * move
    move = step
    while high < most and _rises(factors, v, slope, high, mean, variance) > 0:
        high, move = min(high + move, most), 2 * move
    while low < high:
        centre = (low + high) // 2
        if _rises(factors, v, slope, centre, mean, variance) > 0:
            low = centre + 1
        else:
            high = centre
    peak = _log_at(factors, v, slope, low, mean, variance)
    ends = np.empty(2)
    for side in (-1, 1):
        ends[(side + 1) // 2] = _where_it_falls(
            factors, v, slope, low, side, mean, variance, least, most, peak - 2.0
        )
    return 0.5 * (ends[0] + ends[1]), max(((ends[1] - ends[0]) / 4) ** 2, 1e-3)


@njit(cache=True, _nrt=False)
def _rises(factors, v, slope, count, mean, variance):
    return _log_at(factors, v, slope, count + 1, mean, variance) - _log_at(
        factors, v, slope, count, mean, variance
    )


@njit(cache=True, _nrt=False)
def _where_it_falls(factors, v, slope, peak, side, mean, variance, least, most, level):
    """Return the count at which a node's log density falls below a level, on one side of its peak."""
    inner, move = peak, np.int64(1)
    outer = peak
    while True:
        outer = min(max(peak + side * move, least), most)
        if _log_at(factors, v, slope, outer, mean, variance) < level:
            break
        if outer in (least, most):
            return float(outer)
        inner, move = outer, 2 * move
    while abs(outer - inner) > 1 + move // 8:
        centre = (inner + outer) // 2
        if _log_at(factors, v, slope, centre, mean, variance) < level:
            outer = centre
        else:
            inner = centre
    return 0.5 * (inner + outer)


@njit(cache=True)
def _update_inner(first_node, end, child_ptr, factors, informs, floor, ceiling, above, state, below):
    """Update the moments of the messages of inner nodes, from the last node of a run to the first.

    `below` (n, 3) holds mean and variance of the sums of parts, and the largest variance of a part.
    """
    for v in range(end - 1, first_node - 1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            continue
        mean = variance = widest = 0.0
        for c in range(first, last):
            mean += state.mean[c]
            variance += state.variance[c]
            widest = max(widest, state.variance[c])
        slope = above[v] - state.tau[v]
        same = slope == state.slope[v] and mean == below[v, 0] and variance == below[v, 1]
        below[v, 0], below[v, 1], below[v, 2] = mean, variance, widest
        if same:
            continue
        state.slope[v] = slope
        state.mean[v], state.variance[v] = mean, variance
        if informs[v]:
            values = _middle(factors, v, slope, mean, variance, floor[v], ceiling[v])
            state.mean[v], state.variance[v] = values
            at = np.int64(math.floor(values[0] + 0.5))
            state.top[v] = _log_at(factors, v, slope, min(max(at, floor[v]), ceiling[v]), 0.0, np.inf)
            if not np.isfinite(state.top[v]):
                state.top[v] = 0.0


@njit(cache=True)
def _moved(child_ptr, informs, least, most, given, state, below, last_step):
    """Return tilts after a Newton step towards equal expected sums, and the largest change of a sum.

    Given a change of the tilt of its parts, a sum moves by its variance times that, and so does each part. A step that
    would undo the last one, `last_step` (n,), goes half as far at most.
    """
    n = len(state.tau)
    tau, furthest = state.tau.copy(), 0.0
    parent_change, parent_tau = np.zeros(n), np.zeros(n)
    parent_tau[: len(given)] = given
    for v in range(n):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            continue
        wanted = state.mean[v] + state.variance[v] * parent_change[v]
        if not informs[v]:
            tau[v] = parent_tau[v]
        else:
            spread = max(below[v, 1], NARROW)
            change = (wanted - below[v, 0]) / spread
            # A tilt by more than one standard deviation of a part leaves the range where the moments hold.
            reach = min(1.0 / math.sqrt(max(below[v, 2], 1e-9)), MAX_TILT_STEP)
            if last_step[v] != 0.0:  # lest it go back and forth
                reach = min(reach, (0.5 if change * last_step[v] < 0.0 else 1.5) * abs(last_step[v]))
            fresh = state.tau[v] + min(max(change, -reach), reach)
            for c in range(first, last):
                if child_ptr[c] == child_ptr[c + 1]:
                    fresh = min(max(fresh, least[c]), most[c])
            off = abs(fresh - state.tau[v]) * math.sqrt(spread)
            if off > RESTING:
                tau[v], last_step[v] = fresh, fresh - state.tau[v]
                furthest = max(furthest, off)
        for c in range(first, last):
            parent_tau[c], parent_change[c] = tau[v], tau[v] - state.tau[v]
    return tau, furthest


@njit(cache=True)
def inherit(child_ptr, tau, given):
    """Return for each node the tilt of its parent, and for each root the tilt `given`."""
    parent_tau = np.zeros(len(tau))
    parent_tau[: len(given)] = given
    for v in range(len(tau)):
        for c in range(child_ptr[v], child_ptr[v + 1]):
            parent_tau[c] = tau[v]
    return parent_tau


@njit(cache=True)
def tilts(child_ptr, slope):
    """Return the tilt below every inner node, given the slopes of all nodes' factors."""
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
    """Return limits on the tilt above each leaf, and on the slope of each inner node."""
    least, most = np.empty(len(low)), np.empty(len(low))
    for v in range(len(low)):
        least[v], most[v] = steepest(factors, v, low[v], high[v], floor[v], ceiling[v])
    return least, most


@njit(cache=True)
def first_tilts(child_ptr, factors):
    """Return the tilts at which the parts of each split are negative binomial with the measured mean.

    Given its count X, the parts of a node with `total` A are like negative binomials of success X / (X + A). X is the
    middle of the node's first table, or the sum of its parts'; nodes without a split are not tilted. Of parts of two
    kinds, A is the mean of their sum.
    """
    n = len(child_ptr) - 1
    about, tau = np.zeros(n), np.zeros(n)
    for v in range(n - 1, -1, -1):
        for c in range(child_ptr[v], child_ptr[v + 1]):
            about[v] += about[c]
        k = factors.ptr[v]
        if k < factors.ptr[v + 1] and factors.open_ended[factors.table[k]] != FALLING:
            table = factors.table[k]
            about[v] = factors.base[k] + (factors.start[table + 1] - factors.start[table]) // 2
        about[v] = min(max(about[v], factors.lower[v], 0.5), max(float(factors.upper[v]), 0.5))
        if child_ptr[v] < child_ptr[v + 1] and factors.total[v] != 1.0:
            total = factors.total[v]
            if factors.parts[v] > 0:
                k, a, b, odds = kinds(factors, v)
                of_second = divisors(k, a, b, odds, np.int64(max(about[v], 1.0)), 1, True)[1, 0]
                total = (k - of_second) * a + of_second * b
            tau[v] = np.log(about[v] / (about[v] + total))
    return tau


def find_tilts(child_ptr, factors, windows, tau: Reals | None = None, given: Reals = NO_TILT) -> TiltState:
    """Return tilts that centre the sums of parts on the posterior, and the moments of all messages.

    Steps of the module's note, from `tau` or from `first_tilts`, until no sum is off by `TILT_TOLERANCE_SDS` standard deviations,
    or `STALLED_STEPS` came no nearer.
    Python is returned to between steps, and within them, so an interruption is heard.

    Parameters
    ----------
    windows
        low, high, floor, ceiling `(n,)` of every node, as `Tilted` has them.
    given
        (k,) tilts above the first nodes, which are roots.
    """
    low, high, floor, ceiling = windows
    n = len(low)
    informs = has_factor(child_ptr, factors)
    least, most = limits(child_ptr, factors, low, high, floor, ceiling)
    pieces = _pieces(child_ptr, factors, low, high)
    first: Reals = first_tilts(child_ptr, factors) if tau is None else tau
    state = TiltState(first, np.full(n, np.nan), *np.zeros((3, n)))
    below, last_step = np.full((n, 3), np.nan), np.zeros(n)
    nearest, stalled = np.inf, 0
    for _ in range(MAX_TILT_STEPS):
        above = inherit(child_ptr, state.tau, given)
        for begin, end in reversed(pieces):
            _leaves(begin, end, child_ptr, factors, low, high, above, state)
            _update_inner(begin, end, child_ptr, factors, informs, floor, ceiling, above, state, below)
        tau, off = _moved(child_ptr, informs, least, most, given, state, below, last_step)
        nearest, stalled = (off, 0) if off < STALLED * nearest else (nearest, stalled + 1)
        if off < TILT_TOLERANCE_SDS or stalled == STALLED_STEPS:
            break
        state = state._replace(tau=tau)
    return state


def _pieces(child_ptr, factors, low: Integers, high: Integers) -> list[tuple[int, int]]:
    """Return runs of nodes that have about `ENTRIES_A_CALL` entries each."""
    entries = (high - low + 1).astype(float)
    free = (factors.ptr[1:] == factors.ptr[:-1]) & (factors.alpha == factors.total)
    entries[free] = np.minimum(entries[free], WIDEST_TABLE)  # a sum in closed form beyond
    entries[child_ptr[1:] > child_ptr[:-1]] = 100
    cuts = np.flatnonzero(np.diff(np.cumsum(entries) // ENTRIES_A_CALL)) + 1
    return [*pairwise([0, *cuts.tolist(), len(low)])]
