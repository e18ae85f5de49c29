"""Exact posterior of integer counts on a tree: messages up, marginals or draws down.

Leaves start with their own factor (likelihood x prior x bounds). Up: the masses of a parent are
the convolution of its children's, multiplied by the parent's own factor wherever it is measured.
Down: the mass that all other nodes give to a count, or one draw of a split of each parent's count.
Sum-product gives marginals and independent joint draws, max-product the mode.

Nothing is dropped in silence. With every factor above a node at most 1 after scaling, leaving a
fraction `lost_v` of the message of `v` out can remove at most

    lost_v / prod_{a above v} c_a

of the posterior, where `c_a` is the evidence at `a`: the mean of its (scaled) factor under its
children's message. The sum over nodes is reported, and windows are widened until it is small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.typed import List
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from trueup.kernel.pmf import Factors, convolve, correlate, log_factor, reach_all, trim
from trueup.kernel.saddle import bounds, find_tilts, has_factor

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

DIRECT = 600
"""Windows narrower than this are convolved term by term; wider pairs by FFT."""

_MASSES = types.float64[::1]


class Plan(NamedTuple):
    """A tree whose families are split into pairs: `n` nodes, then auxiliary sums.

    `order` lists children before parents; `family[v]:family[v + 1]` are the auxiliary nodes of
    parent `v`, in the order they are summed.
    """

    left: Integers
    right: Integers
    order: Integers
    family: Integers


class Tilted(NamedTuple):
    """Factors of `n` nodes on finite windows, each times `exp(slope count - top)`: at most 1.

    `low`, `high` are the windows; `floor`, `ceiling` what is known for certain; `informs` marks
    inner nodes that have a factor of their own.
    """

    factors: Factors
    low: Integers
    high: Integers
    floor: Integers
    ceiling: Integers
    slope: Reals
    top: Reals
    informs: NDArray[np.bool_]


class Messages(NamedTuple):
    """Masses of every node given all that is below it, with what was left out.

    Attributes
    ----------
    masses
        One normalised array per node of the plan; entry 0 is the count `offset`.
    offset
        (nodes,) counts.
    evidence
        (nodes,) `log c_a` of the module's note; 0 for nodes without a factor.
    lost
        (nodes,) fraction of each message that truncation or rounding may have removed.
    """

    masses: List
    offset: Integers
    evidence: Reals
    lost: Reals


@njit(cache=True)
def plan_pairs(child_ptr):
    """Split each family into a balanced tree of pairs, so windows grow as slowly as they can."""
    n = len(child_ptr) - 1
    children = np.diff(child_ptr)
    extra = np.maximum(children - 2, 0)
    family = np.empty(n + 1, np.int64)
    family[0] = n
    family[1:] = n + np.cumsum(extra)
    total = family[n]
    left, right = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    order = np.empty(total, np.int64)
    position = 0
    for v in range(n - 1, -1, -1):
        current = np.arange(child_ptr[v], child_ptr[v + 1])
        fresh = family[v]
        while len(current) > 2:
            # pair neighbours; stop pairing as soon as two sums are left
            upper = np.empty((len(current) + 1) // 2, np.int64)
            for k in range(len(upper)):
                if 2 * k + 1 == len(current):
                    upper[k] = current[2 * k]
                    continue
                left[fresh], right[fresh] = current[2 * k], current[2 * k + 1]
                order[position] = upper[k] = fresh
                fresh += 1
                position += 1
            current = upper
        if len(current) > 0:
            left[v] = current[0]
        if len(current) > 1:
            right[v] = current[1]
        order[position] = v
        position += 1
    return Plan(left, right, order, family)


@njit(cache=True)
def _factor(tilted, v, low, size):
    """Return the tilted, scaled log factor of a node on a window."""
    return log_factor(tilted.factors, v, low, size, tilted.slope[v]) - tilted.top[v]


@njit(cache=True)
def _beyond(tilted, v):
    """Return the tilted mass, and the largest value, beyond a node's tables where they are cut off.

    A law of noise is log-concave, so beyond its table it falls at least as fast as at the edge.
    """
    factors, low, high = tilted.factors, tilted.low[v], tilted.high[v]
    cut_left = cut_right = False
    for k in range(factors.ptr[v], factors.ptr[v + 1]):
        table, base = factors.table[k], factors.base[k]
        if factors.open_ended[table]:
            end = base + factors.start[table + 1] - factors.start[table] - 1
            cut_left |= base == low and low > tilted.floor[v]
            cut_right |= end == high and high < tilted.ceiling[v]
    mass = largest = 0.0
    for cut, edge, inside in ((cut_left, low, low + 1), (cut_right, high, high - 1)):
        if cut:
            last = _factor(tilted, v, edge, 1)[0]
            ratio = np.exp(last - _factor(tilted, v, inside, 1)[0])
            value = np.exp(last)
            mass += value * ratio / (1 - ratio) if ratio < 1 else np.inf
            largest = max(largest, value if ratio < 1 else np.inf)
    return mass, largest


@njit(cache=True)
def _leaf(tilted, v, tolerance, messages):
    """Store the message of a leaf: its own factor."""
    masses = np.exp(_factor(tilted, v, tilted.low[v], tilted.high[v] - tilted.low[v] + 1))
    total = masses.sum()
    first, last, lost = trim(masses, tolerance)
    kept = masses[first:last]
    messages.masses[v] = kept / kept.sum()
    messages.offset[v] = tilted.low[v] + first
    messages.lost[v] = lost + _beyond(tilted, v)[0] / total


@njit(cache=True)
def _inner(tilted, v, masses, offset, rounding, tolerance, messages):
    """Store the message of a sum: times the node's own factor, if it has one."""
    first, last, log_evidence, lost = 0, len(masses), 0.0, rounding
    if v < len(tilted.low) and tilted.informs[v]:
        first = max(tilted.low[v] - offset, 0)
        last = min(tilted.high[v] - offset + 1, len(masses))
        evidence = 0.0
        if last > first:
            masses = masses[first:last] * np.exp(_factor(tilted, v, offset + first, last - first))
            evidence = masses.sum()
        if evidence < 1e-300:
            messages.masses[v], messages.offset[v] = np.ones(1), offset
            messages.evidence[v], messages.lost[v] = -np.inf, 1.0
            return
        log_evidence = np.log(evidence)
        lost = (rounding + _beyond(tilted, v)[1]) / evidence
    begin, end, trimmed = trim(masses, tolerance)
    kept = masses[begin:end]
    messages.masses[v] = kept / kept.sum()
    messages.offset[v] = offset + first + begin
    messages.evidence[v] = log_evidence
    messages.lost[v] = lost + trimmed


@njit(cache=True)
def _sweep_up(position, plan, tilted, tolerance, messages, direct):
    """Work through `plan.order` until a pair is too wide to convolve term by term."""
    for place in range(position, len(plan.order)):
        v = plan.order[place]
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            _leaf(tilted, v, tolerance[v], messages)
        elif b < 0:
            _inner(tilted, v, messages.masses[a], messages.offset[a], 0.0, tolerance[v], messages)
        else:
            one, other = messages.masses[a], messages.masses[b]
            if min(len(one), len(other)) > direct:
                return place
            masses = convolve(one, other)
            _inner(tilted, v, masses, messages.offset[a] + messages.offset[b], 0.0, tolerance[v], messages)
    return len(plan.order)


@njit(cache=True)
def _empty_messages(count):
    masses = List.empty_list(_MASSES)
    for _ in range(count):
        masses.append(np.ones(1))
    return Messages(masses, np.zeros(count, np.int64), np.zeros(count), np.zeros(count))


def upward(plan: Plan, tilted: Tilted, tolerance: Reals, direct: int = DIRECT) -> Messages:
    """Return the messages of all nodes; `tolerance` (nodes,) is the fraction each may leave out."""
    messages = _empty_messages(len(plan.left))
    position = 0
    while True:
        position = _sweep_up(position, plan, tilted, tolerance, messages, direct)
        if position == len(plan.order):
            return messages
        v = plan.order[position]
        a, b = plan.left[v], plan.right[v]
        masses, rounding = _convolve_fast(messages.masses[a], messages.masses[b])
        offset = messages.offset[a] + messages.offset[b]
        _inner(tilted, v, masses, offset, rounding, tolerance[v], messages)
        position += 1


def _convolve_fast(a: Reals, b: Reals) -> tuple[Reals, float]:
    """Convolve by FFT; also bound the mass of rounding errors."""
    masses = np.maximum(fftconvolve(a, b), 0.0)
    return masses, _rounding(a, b) * len(masses)


def _rounding(a: Reals, b: Reals) -> float:
    """Bound the error of each entry of a convolution by FFT (Higham 2002, section 24.1)."""
    depth = np.log2(2.0 * (len(a) + len(b)))
    return float(4 * np.finfo(float).eps * depth * np.linalg.norm(a) * np.linalg.norm(b))


@njit(cache=True)
def above(plan, evidence):
    """Return, for each node of the plan, the log evidence of all nodes above it."""
    out = np.zeros(len(evidence))
    for place in range(len(plan.order) - 1, -1, -1):
        v = plan.order[place]
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[c] = out[v] + evidence[v]
    return out


@njit(cache=True)
def _weights(tilted, v, messages, down):
    """Return what all nodes outside the children of `v` give to its count, on its window."""
    if v < len(tilted.low) and tilted.informs[v]:
        size = len(messages.masses[v])
        return down * np.exp(_factor(tilted, v, messages.offset[v], size) - messages.evidence[v])
    return down


@njit(cache=True)
def _sweep_down(position, plan, tilted, messages, down, direct):
    """Pass messages down until a pair is too wide to work term by term."""
    for place in range(position, -1, -1):
        v = plan.order[place]
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            continue
        one = messages.masses[a]
        weights = _weights(tilted, v, messages, down[v])
        shift = messages.offset[a] - messages.offset[v]
        if b < 0:
            down[a] = correlate(weights, np.ones(1), shift, len(one))
            continue
        other = messages.masses[b]
        if min(len(one), len(other)) > direct:
            return place
        shift += messages.offset[b]
        down[a] = correlate(weights, other, shift, len(one))
        down[b] = correlate(weights, one, shift, len(other))
    return -1


@njit(cache=True)
def _start_down(masses):
    down = List.empty_list(_MASSES)
    for v in range(len(masses)):
        down.append(np.ones(len(masses[v])))
    return down


@njit(cache=True)
def _products(masses, offset, down, n):
    """Return marginals of the first `n` nodes end to end: starts, offsets, masses."""
    start = np.zeros(n + 1, np.int64)
    for v in range(n):
        start[v + 1] = start[v] + len(masses[v])
    out = np.empty(start[n])
    for v in range(n):
        product = masses[v] * down[v]
        out[start[v] : start[v + 1]] = product / product.sum()
    return start, offset[:n].copy(), out


def downward(plan: Plan, tilted: Tilted, messages: Messages, direct: int = DIRECT):
    """Return exact marginals of all `n` nodes: `start` (n + 1,), `offset` (n,), `masses` end to end."""
    down = _start_down(messages.masses)
    above_evidence = above(plan, messages.evidence)
    position = len(plan.order) - 1
    while True:
        position = _sweep_down(position, plan, tilted, messages, down, direct)
        if position < 0:
            return _products(messages.masses, messages.offset, down, len(tilted.low))
        v = plan.order[position]
        a, b = plan.left[v], plan.right[v]
        weights = _weights(tilted, v, messages, down[v])
        shift = int(messages.offset[a] + messages.offset[b] - messages.offset[v])
        one, other = messages.masses[a], messages.masses[b]
        for child, mine, sibling in ((a, one, other), (b, other, one)):
            down[child], rounding = _correlate_fast(weights, sibling, shift, len(mine))
            messages.lost[child] += rounding * np.exp(above_evidence[child])
        position -= 1


def _correlate_fast(weights: Reals, other: Reals, shift: int, size: int) -> tuple[Reals, float]:
    """Do as `correlate` does, by FFT; also bound each entry's rounding error."""
    full = fftconvolve(weights, other[::-1])  # entry i + shift + len(other) - 1 is out[i]
    at = np.arange(size) + shift + len(other) - 1
    inside = (at >= 0) & (at < len(full))
    values = np.where(inside, np.maximum(full[np.clip(at, 0, len(full) - 1)], 0.0), 0.0)
    return values, _rounding(weights, other)


@njit(cache=True)
def _split(one, other, total, out, uniforms, chosen):
    """Draw the left part of a total for every draw in `chosen`, from one running sum."""
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
def _split_all(plan, v, messages, totals, rng):
    """Draw both parts of node `v` for all draws; equal totals share one running sum."""
    a, b = plan.left[v], plan.right[v]
    if b < 0:
        return totals.copy(), totals
    one, other = messages.masses[a], messages.masses[b]
    base = messages.offset[a] + messages.offset[b]
    part = np.empty(len(totals), np.int64)
    uniforms = np.empty(len(totals))
    for d in range(len(totals)):
        uniforms[d] = rng.random()
    order = np.argsort(totals)
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
def draw(plan, messages, n, draws, rng):
    """Draw counts of all `n` nodes, `(n, draws)`: independent, joint, additive, never negative."""
    out = np.empty((n, draws), np.int64)
    running = np.cumsum(messages.masses[0])
    for d in range(draws):
        out[0, d] = messages.offset[0] + min(
            np.searchsorted(running, rng.random() * running[-1], side="right"), len(running) - 1
        )
    for v in range(n):
        if plan.left[v] < 0:
            continue
        first = plan.family[v]
        inner = np.empty((plan.family[v + 1] - first, draws), np.int64)
        for place in range(len(inner), -1, -1):
            node = v if place == len(inner) else first + place
            totals = out[v] if node == v else inner[place]
            parts = _split_all(plan, node, messages, totals, rng)
            for child, part in zip((plan.left[node], plan.right[node]), parts):
                if child >= n:
                    inner[child - first] = part
                elif child >= 0:
                    out[child] = part
    return out


class Solved(NamedTuple):
    """A tree whose messages are known: what `marginals`, `draw` and `mode` read.

    `dropped` bounds the posterior mass that windows and rounding may have removed.
    """

    plan: Plan
    tilted: Tilted
    messages: Messages
    dropped: float


def solve(child_ptr: Integers, factors: Factors, tolerance: float = 1e-9) -> Solved:
    """Pass messages up so that at most `tolerance` of the posterior is left out, if tables allow.

    Parameters
    ----------
    child_ptr
        (n + 1,) children of each node, in level order.
    factors
        Likelihoods, priors and bounds; every window must be finite after `saddle.bounds`.
    tolerance
        Largest posterior mass that may be dropped. When tables of open-ended laws are too short
        for it, `dropped` comes back larger (1 when the windows exclude each other): deepen them.

    Examples
    --------
    One total and two parts, all measured with epsilon = 1:

    >>> from trueup.kernel.pmf import OPEN, Factors
    >>> law = -np.abs(np.arange(-60.0, 61.0))
    >>> noisy = np.array([10, 4, 5])
    >>> none = np.full(3, OPEN)
    >>> factors = Factors(np.arange(4), noisy - 60, np.zeros(3, np.int64), np.array([0, 121]), law,
    ...                   np.ones(1, np.int64), np.zeros(3, np.int64), none)
    >>> solved = solve(np.array([1, 3, 3, 3]), factors)
    >>> start, offset, masses = marginals(solved)
    >>> float(np.round(masses[:start[1]] @ (offset[0] + np.arange(start[1])), 2))
    9.67
    """
    tilted = _tilt(child_ptr, factors)
    plan = plan_pairs(child_ptr)
    if np.any(tilted.low > tilted.high):
        return Solved(plan, tilted, _empty_messages(len(plan.left)), 1.0)
    share = np.full(len(plan.left), 1e-18)
    for direct in (DIRECT, DIRECT, 1 << 20):
        messages = upward(plan, tilted, share, direct)
        surprise = above(plan, messages.evidence)
        with np.errstate(over="ignore"):
            dropped = float(np.sum(messages.lost * np.exp(-surprise)))
        if dropped <= tolerance or not np.isfinite(surprise).all():
            break
        share = np.minimum(share, 0.1 * tolerance / len(share) * np.exp(surprise))
    return Solved(plan, tilted, messages, min(dropped, 1.0))


def _tilt(child_ptr: Integers, factors: Factors) -> Tilted:
    """Choose windows and tilts."""
    n = len(child_ptr) - 1
    lowest, highest = reach_all(factors)
    floor, ceiling = bounds(child_ptr, factors.lower, factors.upper)
    low, high = bounds(child_ptr, lowest, highest)
    informs = has_factor(child_ptr, factors)
    if np.any(low > high):
        return Tilted(factors, low, high, floor, ceiling, np.zeros(n), np.zeros(n), informs)
    tau, parent_tau, top = find_tilts(child_ptr, factors, low, high, 40)
    leaf = child_ptr[1:] == child_ptr[:-1]
    return Tilted(
        factors, low, high, floor, ceiling, np.where(leaf, parent_tau, parent_tau - tau), top, informs
    )


def marginals(solved: Solved) -> tuple[Integers, Integers, Reals]:
    """Return the exact marginal of every node: `start` (n + 1,), `offset` (n,), masses end to end."""
    return downward(*solved[:3])


def joint_draws(solved: Solved, draws: int, rng: np.random.Generator) -> Integers:
    """Return `(draws, n)` independent draws of all nodes: integers, additive, inside all bounds."""
    n = len(solved.tilted.low)
    return draw(solved.plan, solved.messages, n, draws, rng).T


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
def _narrow(offset, start, size, masses, cut):
    """Return each window without the ends whose marginal mass is below `cut`."""
    low, high = offset.copy(), offset.copy()
    for v in range(len(offset)):
        first, last, _ = trim(masses[start[v] : start[v] + size[v]], cut)
        low[v] += first
        high[v] += last - 1
    return low, high


@njit(cache=True)
def _mode(plan, tilted, n, low, high):
    """Max-product up, choices down, with every count of the tree on its window."""
    total = len(plan.left)
    logs, choices = List.empty_list(_MASSES), List.empty_list(types.int64[::1])
    for _ in range(total):
        logs.append(np.zeros(1))
        choices.append(np.zeros(1, np.int64))
    offset = np.zeros(total, np.int64)
    for v in plan.order:
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            offset[v] = low[v]
            logs[v] = _factor(tilted, v, low[v], high[v] - low[v] + 1)
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
                best += _factor(tilted, v, offset[v], len(best))
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


def mode(solved: Solved, cut: float = 1e-6) -> Integers:
    """Return one most probable vector of counts `(n,)`: maximum a posteriori, exactly additive.

    The search covers, at every node, the counts that hold all but `cut` of its marginal mass.
    """
    start, offset, masses = marginals(solved)
    low, high = _narrow(offset, start, np.diff(start), masses, cut)
    return _mode(solved.plan, solved.tilted, len(low), low, high)
