"""Upper bounds on the mass that the truncation of messages to windows leaves out.

With `S(t)` the mass that the parts of a node give to its count and `K(theta) = log sum_t S(t) exp(theta t)`,

    S(t) <= exp(K(theta) - theta t)        for every theta (Chernoff),

and K is the sum over the parts of their own. So every message carries its K at a few `theta`, its *growth*, and which
fraction of each was lost so far: at those `theta` that its parent asks for, see `probes_of`. Of a sum, what is kept is known
count by count: its part outside the node's window is summed as it is (`cut_away`). What was lost below, inside the window
(`landed`) and outside (`outside`), is bounded count by count by the lowest of the lines `height - theta t`, where `height` is
the log of the lost fraction of `exp(K)`: in logs, since a fraction that no floating-point number holds may be all at another
tilt. For that reason every count of a sum may lack `exp(LEAST)` more. Both are multiplied by the node's factor. Outside the
window that is bounded by a line in the logs for its laws, which are log-concave, times the factor of its split, whose log is
convex (`alpha < total`) and below its chord, or concave and below its tangent.

A count that was not measured, although its siblings and its parent were, is bounded by theirs on both sides, and its
own factor need not fall on either: its K is infinite, or huge. But every count of a sum is bounded as well where one of its
parts enters with the largest value of `S(t) exp(theta t)` in place of the sum of them; at no tilt at all it is finite.
Such leaves are `pointwise`; there is at most one in a family.

Where a split with `alpha >> total` rises for longer than the tables reach, few `theta` serve: the tilt that suits the bulk
is far from the one that suits the tail. But given a sum its splits `w(x_c; alpha_c)` add up to `w(t; A)`. So where every
part's message is at most `exp(largest_c) w(x; alpha_c) exp(tilt x)`, the mass of their sum is at most `exp(sum largest_c)
w(t; A) exp(tilt t)`; the node's own factor divides by `w(t; A)`, and what remains falls as its laws do. The lower of the
two bounds counts.

One file: every bound is a sum of the same pieces, a line in the logs times a split's factor over a run of counts.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.messages import log_ratio
from trueup.kernel.messages.pmf import FALLING

PROBES = 8
"""Tilts at which every message's growth is known: none, one near and one far to the right, others to the left, and one between
those to the right."""
MAX_WEIGHT_NATS = 600.0
"""Nats between the weights of counts that are summed at once."""
MIN_LOG_MASS = -690.0
"""Log of the mass, of a message whose sum or largest mass is 1, that any count may lack where floating-point numbers end."""
UNLIMITED_TILT = 50.0
"""Tilt of the far probe above which a window counts as unlimited on that side: the mass beyond it is below floating point at this
tilt. The probe uses the parent's tilt, not the tilt of the whole tree."""
TOUCHING_DEVIATIONS = 7.0
"""Standard deviations from the middle of a sum where its nearest bounds touch it."""


@njit(cache=True, _nrt=False)
def law_at(factors, v, count):
    """Return the log of a node's tables at one count, extended linearly beyond the tables' ends."""
    value = 0.0
    for k in range(factors.ptr[v], factors.ptr[v + 1]):
        value += _table_at(factors, k, count)
    return value


@njit(cache=True, _nrt=False)
def _table_at(factors, k, count):
    table = factors.table[k]
    first, last = factors.start[table], factors.start[table + 1] - 1
    at = first + count - factors.base[k]
    if first <= at <= last:
        return factors.log[at]
    if factors.open_ended[table] == FALLING:
        return factors.log[last] if at > last else factors.log[first]
    if factors.open_ended[table] == 0.0 or first == last:
        return -np.inf
    if at > last:
        return factors.log[last] + (at - last) * (factors.log[last] - factors.log[last - 1])
    return factors.log[first] + (first - at) * (factors.log[first] - factors.log[first + 1])


@njit(cache=True, _nrt=False)
def _largest(values, first, last):
    most = values[first]
    for i in range(first + 1, last + 1):
        most = max(most, values[i])
    return most


@njit(cache=True, _nrt=False)
def edge(factors, v, at, side):
    """Return a line `base + slope |count - at|` that bounds a node's log tables beyond `at`, and its end.

    A negative binomial of size r < 1 is not log-concave. To the right its ratio of neighbours, `(x + r) / (x + 1)`
    times a constant, rises at most by the factor `at / (at - 1 + r)`; to the left the excesses multiply to at most
    `prod_{x <= at} x / (x - 1 + r) = Gamma(at + 1) Gamma(r) / Gamma(at + r)`.
    """
    base, slope, end = 0.0, 0.0, side * (np.int64(1) << 60)
    for k in range(factors.ptr[v], factors.ptr[v + 1]):
        table = factors.table[k]
        first, last = factors.start[table], factors.start[table + 1] - 1
        size = factors.open_ended[table]
        if size == FALLING:  # at most 1
            continue
        if size > 0.0:
            value = _table_at(factors, k, at)
            base += value
            slope += _table_at(factors, k, at + side) - value
            if size < 1.0 and at > 0:
                if side > 0:
                    slope += math.log(at / (at - 1 + size))
                else:
                    base += math.lgamma(at + 1.0) + math.lgamma(size) - math.lgamma(at + size)
            continue
        position = first + at + side - factors.base[k]
        if not first <= position <= last:
            return -np.inf, 0.0, at
        base += _largest(factors.log, position, last) if side > 0 else _largest(factors.log, first, position)
        limit = factors.base[k] + (last - first if side > 0 else 0)
        end = min(end, limit) if side > 0 else max(end, limit)
    return base, slope, end


@njit(cache=True, _nrt=False)
def _geometric(first, slope, steps):
    """Return the log of `sum_{k < steps} exp(first + slope k)`."""
    if steps <= 1:
        return first
    if abs(slope) * steps < 1e-9:
        return first + math.log(steps) if np.isfinite(steps) else np.inf
    if slope < 0:
        whole = 1 - math.exp(max(slope * steps, -700.0)) if np.isfinite(steps) else 1.0
        return first + math.log(whole) - math.log(-math.expm1(slope))
    if not np.isfinite(steps):
        return np.inf
    return (
        first
        + slope * (steps - 1)
        + math.log(-math.expm1(max(-slope * steps, -700.0)))
        - math.log(-math.expm1(-slope))
    )


@njit(cache=True, _nrt=False)
def _run(alpha, total, begin, end, level, slope):
    """Return an upper bound on the log sum of `exp(level + slope t)` times a split's factor."""
    side = 1 if end >= begin else -1
    open_ended = abs(end) >= np.int64(1) << 59
    steps = np.inf if open_ended else abs(float(end - begin)) + 1
    first = level + slope * begin + log_ratio(begin, alpha, total)
    away = side * slope
    if alpha == total:
        return _geometric(first, away, steps)
    if alpha > total:
        rise = log_ratio(begin + side, alpha, total) - log_ratio(begin, alpha, total)
        return _geometric(first, away + rise, steps)
    bound = _geometric(first, away, steps) if side > 0 else np.inf
    if not open_ended and steps > 1:
        last = level + slope * end + log_ratio(end, alpha, total)
        bound = min(bound, _geometric(first, (last - first) / (steps - 1), steps))
    return first if steps == 1 else bound


@njit(cache=True, _nrt=False)
def _run_of_kinds(factors, v, begin, end, level, slope):
    """Return the bound of `_run` for a leaf whose parts may be of two kinds."""
    mass = _run(factors.alpha[v], factors.total[v], begin, end, level, slope)
    if factors.odds[v] == -np.inf:
        return mass
    return add_logs(mass, _run(factors.second[v], 1.0, begin, end, level + factors.odds[v], slope))


@njit(cache=True, _nrt=False)
def add_logs(a, b):
    """Return the log of `exp(a) + exp(b)`."""
    top = max(a, b)
    return top if not np.isfinite(top) else top + math.log(math.exp(a - top) + math.exp(b - top))


@njit(cache=True, _nrt=False)
def beyond(tilted, v, extra):
    """Return an upper bound on the log mass of a leaf's factor beyond its tables, at a further tilt."""
    factors, low, high = tilted.factors, tilted.low[v], tilted.high[v]
    tilt, mass = tilted.slope[v] + extra, -np.inf
    base, slope, end = edge(factors, v, high, 1)
    end = min(end, tilted.ceiling[v])
    if end > high:
        level = base - slope * high - tilted.top[v]
        mass = _run_of_kinds(factors, v, high + 1, end, level, slope + tilt)
    base, slope, end = edge(factors, v, low, -1)
    end = max(end, tilted.floor[v])
    if end < low:
        level = base + slope * low - tilted.top[v]
        mass = add_logs(mass, _run_of_kinds(factors, v, low - 1, end, level, tilt - slope))
    return mass


@njit(cache=True, _nrt=False)
def highest_beyond(tilted, v, extra):
    """Return an upper bound on the log tilted factor of a leaf without tables, outside its window."""
    factors, tilt = tilted.factors, tilted.slope[v] + extra
    found = _highest_beyond(tilted, v, factors.alpha[v], factors.total[v], tilt)
    if factors.odds[v] > -np.inf:
        found = add_logs(found, factors.odds[v] + _highest_beyond(tilted, v, factors.second[v], 1.0, tilt))
    return found - tilted.top[v]


@njit(cache=True, _nrt=False)
def _highest_beyond(tilted, v, alpha, total, tilt):
    right = _highest(alpha, total, tilted.high[v] + 1, tilted.ceiling[v], 1, tilt)
    left = _highest(alpha, total, tilted.low[v] - 1, max(tilted.floor[v], 0), -1, tilt)
    return max(right, left)


@njit(cache=True, _nrt=False)
def _highest(alpha, total, begin, end, side, tilt):
    """Return an upper bound on the log of a split's factor times `exp(tilt t)`, over counts `begin..end`."""
    if side * (end - begin) < 0:
        return -np.inf
    first = log_ratio(begin, alpha, total) + tilt * begin
    rise = log_ratio(begin + side, alpha, total) + tilt * (begin + side) - first
    if abs(end) >= np.int64(1) << 59:
        falls = tilt * side <= 0.0 if alpha < total else rise <= 0.0
        return first if falls else np.inf
    if alpha < total:
        return max(first, log_ratio(end, alpha, total) + tilt * end)
    return first + max(rise, 0.0) * abs(float(end - begin))


@njit(cache=True, _nrt=False)
def cut_away(tilted, v, asked, masses, offset, low, high, out):
    """Write bounds on a message's log mass outside `low..high`, times a node's factor, to `out`."""
    factors, cut = tilted.factors, 0
    alpha, total, last = factors.alpha[v], factors.total[v], offset + len(masses) - 1
    for j in range(len(asked)):
        out[j] = -np.inf
    for side in (1, -1):
        at = high if side > 0 else low
        base, slope, end = edge(factors, v, at, side)
        end = min(end, tilted.ceiling[v], last) if side > 0 else max(end, tilted.floor[v], offset)
        begin, stop = (at + 1, end) if side > 0 else (end, at - 1)
        if begin > stop:
            continue
        cut += stop + 1 - begin
        level = base - slope * side * at - tilted.top[v]
        split = log_ratio(begin, alpha, total) if alpha != total else 0.0
        for t in range(begin, stop + 1):
            if masses[t - offset] > 0.0:
                log = level + (slope * side + tilted.slope[v]) * t + split + math.log(masses[t - offset])
                for j in range(len(asked)):
                    out[j] = max(out[j], log + asked[j] * t)
            if alpha != total and t >= 0:
                split += math.log((t + alpha) / (t + total))
    for j in range(len(asked)):
        out[j] += math.log(max(cut, 1))


@njit(cache=True, _nrt=False)
def outside(tilted, v, extra, heights, largest, low, high):
    """Return an upper bound on the log mass, times a factor, that truncation lost outside `low..high`.

    `heights` holds, for each probe theta of its parts, the log of a bound of `sum L(t) exp(theta t)`, where L is what was
    lost: at most `exp(height - theta t)` of it lies at t. And at most `exp(largest)` times the sum of all splits.
    """
    if heights.min() == -np.inf:
        return -np.inf
    mass = _one_side(tilted, v, extra, heights, largest, high, 1)
    return add_logs(mass, _one_side(tilted, v, extra, heights, largest, low, -1))


@njit(cache=True, _nrt=False)
def _one_side(tilted, v, extra, heights, largest, at, side):
    """Return an upper bound on the log mass that truncated parts lost beyond the count `at`, on one side."""
    factors, probes = tilted.factors, tilted.probes[v]
    tilt, above = tilted.slope[v] + extra, tilted.above[v] + extra
    table = tilted.high[v] if side > 0 else tilted.low[v]
    mass = -np.inf
    while True:
        base, slope, end = edge(factors, v, at, side)
        end = min(end, tilted.ceiling[v]) if side > 0 else max(end, tilted.floor[v])
        if side * (end - at) <= 0:
            return mass
        stop = _peak(factors, v, at, end) if slope > 1e-12 else end
        if side * (table - at) > 0 and side * (stop - table) > 0:
            stop = table
        level = base - side * slope * at - tilted.top[v]
        piece = _under_lines(factors, v, at + side, stop, level, side * slope + tilt, heights, probes)
        if largest < np.inf:
            split = _run(factors.alpha[v], 1.0, at + side, stop, level + largest, side * slope + above)
            piece = min(piece, split)
        mass = add_logs(mass, piece)
        if stop == end:
            return mass
        at = stop


@njit(cache=True, _nrt=False)
def _under_lines(factors, v, begin, end, level, slope, heights, probes):
    """Return an upper bound on the log sum of a split's factor, from `begin` to `end`, under given lines.

    From where one line is lowest it is followed up to where the first of the steeper ones crosses it.
    """
    side = 1 if end >= begin else -1
    alpha, total = factors.alpha[v], factors.total[v]
    mass, at = -np.inf, begin
    while side * (end - at) >= 0:
        lowest = 0
        for j in range(1, len(probes)):
            gap = (heights[j] - probes[j] * at) - (heights[lowest] - probes[lowest] * at)
            if gap < 0.0 or (gap == 0.0 and side * (probes[j] - probes[lowest]) > 0.0):
                lowest = j
        stop = end
        for j in range(len(probes)):
            if side * (probes[j] - probes[lowest]) > 0.0 and np.isfinite(heights[j]):
                crossing = (heights[j] - heights[lowest]) / (probes[j] - probes[lowest])
                if abs(crossing) < 1e17:
                    nearest = np.int64(math.floor(crossing)) if side > 0 else np.int64(math.ceil(crossing))
                    if side * (stop - nearest) > 0:
                        stop = nearest if side * (nearest - at) >= 0 else at
        line = _run(alpha, total, at, stop, level + heights[lowest], slope - probes[lowest])
        mass = add_logs(mass, line)
        at = stop + side
    return mass


@njit(cache=True, _nrt=False)
def _peak(factors, v, at, end):
    """Return the count between `at` and `end` at which a node's log-concave tables are largest."""
    side = 1 if end > at else -1
    inner, step = at, np.int64(1)
    while side * (end - inner) > step and law_at(factors, v, inner + side * step) > law_at(
        factors, v, inner + side * (step - 1)
    ):
        inner, step = inner + side * step, 2 * step
    outer = inner + side * min(step, side * (end - inner))
    while side * (outer - inner) > 1:
        centre = inner + side * (side * (outer - inner) // 2)
        if law_at(factors, v, centre) > law_at(factors, v, centre - side):
            inner = centre
        else:
            outer = centre
    return outer


@njit(cache=True, _nrt=False)
def share_of(lost, whole):
    """Return the log of the share that `exp(lost)` is of `exp(whole)`: at most 0."""
    if lost == -np.inf:
        return lost
    return 0.0 if lost == np.inf else min(lost - whole, 0.0)


@njit(cache=True)
def vanished(log, low, theta):
    """Return an upper bound on the log of the tilted sum of those masses of a factor that underflow."""
    most, many = -np.inf, 0
    for i in range(len(log)):
        if log[i] < MIN_LOG_MASS:
            many += 1
            most = max(most, log[i] + theta * (low + i))
    return most + math.log(max(many, 1))


@njit(cache=True, _nrt=False)
def everywhere(each, low, high, theta):
    """Return an upper bound on the log of the sum of `exp(each + theta count)` over `low..high`."""
    return each + max(theta * low, theta * high) + math.log(max(high - low + 1, 1))


@njit(cache=True)
def landed(log, low, heights, probes):
    """Return upper bounds, at every count of a window, on the log mass that a sum of parts has lost.

    Parameters
    ----------
    log, low
        The log factor on the window, and where that starts.
    heights, probes
        Bounds on the mass that the sum has lost, in the form that `outside` takes.
    """
    if heights.min() == -np.inf:
        return np.full(len(log), -np.inf)
    most = log.copy()
    for i in range(len(log)):
        height = np.inf
        for j in range(len(probes)):
            height = min(height, heights[j] - probes[j] * (low + i))
        most[i] += height
    return most


@njit(cache=True)
def landed_growth(most, low, asked):
    """Return the logs of the sums of `exp(most + tilt count)`, one for each tilt in `asked`."""
    out = np.full(len(asked), -np.inf)
    top = most.max()
    if top > -np.inf:
        masses = np.exp(most - top)
        for k in range(len(asked)):
            out[k] = top + log_growth(masses, low, asked[k])
    return out


@njit(cache=True)
def largest_of(tilted, v, kept, top, most, heights, largest, low, high):
    """Return an upper bound on the log of a node's message relative to its tilted split.

    Parameters
    ----------
    kept, top, most
        The message at `low..high` over `exp(top)`, and the log of what of it was lost below.
    heights, largest
        Bounds on the lost mass, in the form that `outside` takes.
    """
    if largest == np.inf:
        return np.inf
    alpha, above = tilted.factors.alpha[v], tilted.above[v]
    split, found, any_lost = log_ratio(low, alpha, 1.0), -np.inf, heights.min() > -np.inf
    for i in range(len(kept)):
        mass = kept[i] + (math.exp(min(most[i] - top, 700.0)) if any_lost else 0.0)
        if mass > 0.0:
            found = max(found, max(top + math.log(mass), most[i]) - split - above * (low + i))
        if alpha != 1.0 and low + i >= 0:
            split += math.log((low + i + alpha) / (low + i + 1.0))
    for side in (1, -1):
        found = max(found, _largest_beyond(tilted, v, heights, largest, high if side > 0 else low, side))
    return found


@njit(cache=True, _nrt=False)
def _largest_beyond(tilted, v, heights, largest, at, side):
    """Return the bound of `largest_of` beyond the count `at`, on one side."""
    factors = tilted.factors
    base, slope, end = edge(factors, v, at, side)
    end = min(end, tilted.ceiling[v]) if side > 0 else max(end, tilted.floor[v])
    if side * (end - at) <= 0:
        return -np.inf
    every = largest + (base if slope <= 0.0 else tilted.largest[v]) - tilted.top[v]
    table = tilted.high[v] if side > 0 else tilted.low[v]
    if side * (table - at) <= 0:
        return every
    if heights.min() == -np.inf:  # the sum ends here
        return -np.inf
    stop = table if side * (end - table) > 0 else end
    level = base - side * slope * at - tilted.top[v]
    tilt = tilted.slope[v] - tilted.above[v] + side * slope
    near, far = np.inf, -np.inf
    for j in range(len(heights)):
        line = _highest(1.0, factors.total[v], at + side, stop, side, tilt - tilted.probes[v, j])
        near = min(near, level + heights[j] + line)
    if stop != end:
        base, slope, _ = edge(factors, v, table, side)
        far = largest + (base if slope <= 0.0 else tilted.largest[v]) - tilted.top[v]
    return min(max(near, far), every)


@njit(cache=True)
def cut_off(masses, offset, begin, end, asked, growth, gone):
    """Add the share of a message's mass outside entries `begin:end` to `gone`, at each tilt in `asked`."""
    for j in range(len(asked)):
        if begin > 0:
            left = log_growth(masses[:begin], offset, asked[j])
            gone[j] = add_logs(gone[j], share_of(left, growth[j]))
        if end < len(masses):
            right = log_growth(masses[end:], offset + end, asked[j])
            gone[j] = add_logs(gone[j], share_of(right, growth[j]))


@njit(cache=True, _nrt=False)
def log_growth(masses, offset, theta):
    """Return the log of `sum masses exp(theta count)`.

    By Horner's rule over runs of counts, as multiples of the least weight of each: none vanishes, none overflows.
    """
    n, steep = len(masses), abs(theta)
    step, size = (
        math.exp(min(steep, MAX_WEIGHT_NATS)),
        n if steep * n < MAX_WEIGHT_NATS else max(np.int64(MAX_WEIGHT_NATS / steep), 1),
    )
    found = -np.inf
    for first in range(0, n, size):
        last, total = min(first + size, n), 0.0
        if theta > 0:
            for i in range(last - 1, first - 1, -1):
                total = total * step + masses[i]
        else:
            for i in range(first, last):
                total = total * step + masses[i]
        if total > 0.0:
            at = first if theta > 0 else last - 1
            found = add_logs(found, math.log(total) + theta * (offset + at))
    return found


@njit(cache=True, _nrt=False)
def log_largest(masses, offset, theta):
    """Return the log of the largest product `masses exp(theta count)`."""
    most = -np.inf
    for i in range(len(masses)):
        if masses[i] > 0.0:
            most = max(most, math.log(masses[i]) + theta * (offset + i))
    return most


@njit(cache=True)
def rooms(child_ptr, factors, high, ceiling, mean, variance, known):
    """Return, for each node, the largest tilt with finite bounds, and the farthest probe of its parts.

    Both are tilts of the whole, not on top of others. A leaf falls as its tables do where they end; a sum as its laws
    do where its window may end. Of the last leaves, which stand for subtrees, the tilt is `known`.
    """
    n = len(high)
    room, far = np.empty(n), np.zeros(n)
    room[n - len(known) :] = known
    for v in range(n - len(known) - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        at = high[v]
        if first < last:
            spread = math.sqrt(variance[first:last].sum())
            at = min(np.int64(mean[v] + TOUCHING_DEVIATIONS * spread) + 1, ceiling[v])
        falls = max(law_at(factors, v, at - 1) - law_at(factors, v, at), 0.0) if at < ceiling[v] else np.inf
        if np.isnan(falls):
            falls = np.inf
        if factors.alpha[v] > factors.total[v]:
            falls = max(falls - math.log((at + factors.alpha[v]) / (at + factors.total[v])), 0.0)
        falls, below = min(falls, 200.0), 0.0
        if first < last:
            below = room[first:last].min()
            far[v] = 0.5 * below if below > 0.01 else below - 0.25 * falls - (0.02 if falls == 0.0 else 0.0)
            below = far[v]
        room[v] = below + 0.9 * falls
    return room, far


@njit(cache=True)
def probes_of(child_ptr, tau, parent, variance, floor, least, room, far, pointwise):
    """Return tilts `(n, PROBES)`, relative to `tau`, at which the mass lost from sums of parts is bounded.

    Parameters
    ----------
    parent
        (n,) the tilt `tau` of every node's parent; 0 for the root.
    variance
        (n,) of every node's message.
    floor, least
        (n,) of a leaf, the least count that is possible, and the least tilt under which it falls to the left beyond its
        tables: it need not where that is finite.
    room, far
        (n,) what `rooms` returns.
    pointwise
        (n,) leaves whose growth is that of their largest value: at no tilt at all it is finite.
    """
    n = len(tau)
    probes = np.zeros((n, PROBES))
    for v in range(n - 1, -1, -1):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            continue
        near = TOUCHING_DEVIATIONS / math.sqrt(max(variance[first:last].sum(), 0.1))
        roof = room[first:last].min()
        probes[v, 1] = min(near, 0.8 * (roof - tau[v])) if roof > tau[v] else far[v] - tau[v]
        probes[v, 2] = max(far[v] - tau[v], probes[v, 1])
        if far[v] > UNLIMITED_TILT and parent[v] > tau[v]:
            probes[v, 2] = parent[v] - tau[v]
        steepest, certain = -np.inf, -np.inf
        for c in range(first, last):
            leaf = child_ptr[c] == child_ptr[c + 1]
            limit = least[c] if leaf else tau[c] + probes[c, 3]
            steepest = max(steepest, limit if limit < tau[v] else -np.inf)
            if leaf and floor[c] < -(np.int64(1) << 59):
                certain = max(certain, least[c])
        probes[v, 3] = max(-near, 0.8 * (steepest - tau[v]))
        for j in range(4, PROBES - 1):
            probes[v, j] = max(-near * 2.0 ** (j - 3), min(0.95 * (certain - tau[v]), 0.0), -200.0)
        for j in range(4, PROBES - 1):
            probes[v, j] = min(probes[v, j], probes[v, j - 1])
        if pointwise[first:last].any():
            probes[v, 2] = -tau[v]
        probes[v, PROBES - 1] = 0.5 * (probes[v, 1] + probes[v, 2])
    return probes
