"""Messages up a tree: masses of every node given all that is below it, and a bound on what was left out."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numba.typed import List
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from trueup.kernel.compiled import njit
from trueup.kernel.messages.pairs import PairPlan
from trueup.kernel.messages.pmf import Factors, convolve, log_factor, split_slope, trim
from trueup.kernel.messages.splits import log_ratio

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

DIRECT = 600
"""Windows narrower than this are convolved term by term; wider pairs by FFT."""

PIECE = 512
"""Nodes after which compiled code returns to Python, which can then be interrupted."""

MASSES = types.float64[::1]


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
        (nodes,) `log c_a` of the note in `trueup.kernel.messages.solve`; 0 for sums without a factor, the log
        of its scaled mass at a leaf. With all `top` their sum is the log evidence of the values.
    lost
        (nodes,) fraction of each message that truncation or rounding may have removed.
    short
        (nodes,) the part of `lost` that is beyond the ends of the node's own tables.
    """

    masses: List
    offset: Integers
    evidence: Reals
    lost: Reals
    short: Reals


@njit(cache=True)
def scaled_factor(tilted, v, low, size):
    """Return the tilted, scaled log factor of a node on a window."""
    return log_factor(tilted.factors, v, low, size, tilted.slope[v]) - tilted.top[v]


@njit(cache=True)
def beyond(tilted, v):
    """Return the tilted mass beyond a node's tables where they are cut off, and the largest values left and right.

    A log-concave function falls at least as fast beyond its table as at the edge. A negative
    binomial of size r < 1 is not log-concave: its ratio of neighbours is `(x + r) / (x + 1)` times a
    constant. To the right of `high` this exceeds its value at the edge at most by the factor
    `high / (high - 1 + r)`; to the left of `low` the excesses multiply to at most
    `prod_{x <= low} x / (x - 1 + r) = Gamma(low + 1) Gamma(r) / Gamma(low + r)`. A split's factor with
    `alpha < total` is bent in the same way: its ratio `(x + alpha) / (x + total)` rises to 1; see `_below_split`.
    """
    factors, low, high = tilted.factors, tilted.low[v], tilted.high[v]
    cut_left = cut_right = False
    steeper, swell = 1.0, 1.0
    for k in range(factors.ptr[v], factors.ptr[v + 1]):
        table, base = factors.table[k], factors.base[k]
        if factors.open_ended[table]:
            end = base + factors.start[table + 1] - factors.start[table] - 1
            cut_left |= base == low and low > tilted.floor[v]
            cut_right |= end == high and high < tilted.ceiling[v]
            size = factors.open_ended[table]
            if 0.0 < size < 1.0 and low >= 0 and high > 0:
                steeper *= high / (high - 1 + size)
                swell *= math.exp(math.lgamma(low + 1.0) + math.lgamma(size) - math.lgamma(low + size))
    alpha, total = factors.alpha[v], factors.total[v]
    bent = alpha < total and high > 0
    if bent:
        steeper *= (high - 1 + total) / (high - 1 + alpha)
    mass, largest = 0.0, np.zeros(2)
    if cut_right:
        last = scaled_factor(tilted, v, high, 1)[0]
        ratio = steeper * np.exp(last - scaled_factor(tilted, v, high - 1, 1)[0])
        mass += np.exp(last) * ratio / (1 - ratio) if ratio < 1 else np.inf
        largest[1] = np.exp(last) if ratio < 1 else np.inf
    if cut_left:
        last = scaled_factor(tilted, v, low, 1)[0]
        fall = scaled_factor(tilted, v, low + 1, 1)[0] - last
        if bent and tilted.floor[v] > -(np.int64(1) << 59):
            left, value = _below_split(factors, v, low, max(tilted.floor[v], 0), last, fall)
        else:
            left = np.exp(last - fall) / (1 - np.exp(-fall)) if fall > 0 else np.inf
            value = np.exp(last) if fall > 0 else np.inf
        mass += swell * left
        largest[0] = swell * value
    return mass, largest


@njit(cache=True)
def _below_split(factors, v, low, floor, last, fall):
    """Bound the mass, and the largest value, to the left of `low` of a falling law times a split's factor.

    The law falls at least as fast as at its edge, so its log lies below a line; the log of a split's factor with
    `alpha < total` is convex. Their sum is below the chord between `low` and the floor.
    """
    alpha, total = factors.alpha[v], factors.total[v]
    steps = low - floor
    law_fall = fall - split_slope(factors, v, low)
    bottom = last - law_fall * steps + log_ratio(floor, alpha, total) - log_ratio(low, alpha, total)
    largest = np.exp(max(last, bottom))
    ratio = np.exp((bottom - last) / steps)
    mass = steps * largest
    if ratio < 1:
        mass = min(mass, np.exp(last) * ratio / (1 - ratio))
    return mass, largest


@njit(cache=True)
def _outside(tilted, v, masses, first, last):
    """Bound the mass of a sum outside `first:last`, where its node's tables are cut off, times the node's factor there."""
    largest = beyond(tilted, v)[1]
    out = 0.0
    if largest[0] > 0.0 and first > 0:
        out += largest[0] * masses[:first].sum()
    if largest[1] > 0.0 and last < len(masses):
        out += largest[1] * masses[max(last, 0) :].sum()
    return out


@njit(cache=True)
def _leaf(tilted, v, tolerance, messages):
    """Store the message of a leaf: its own factor."""
    masses = np.exp(scaled_factor(tilted, v, tilted.low[v], tilted.high[v] - tilted.low[v] + 1))
    total = masses.sum()
    first, last, lost = trim(masses, tolerance)
    kept = masses[first:last]
    messages.masses[v] = kept / kept.sum()
    messages.offset[v] = tilted.low[v] + first
    messages.evidence[v] = np.log(total)
    messages.short[v] = beyond(tilted, v)[0] / total
    messages.lost[v] = lost + messages.short[v]


@njit(cache=True)
def _inner(tilted, v, masses, offset, rounding, tolerance, messages):
    """Store the message of a sum: times the node's own factor, if it has one."""
    first, last, log_evidence, lost = 0, len(masses), 0.0, rounding
    messages.short[v] = 0.0
    if v < len(tilted.low) and tilted.informs[v]:
        first = max(tilted.low[v] - offset, 0)
        last = min(tilted.high[v] - offset + 1, len(masses))
        evidence, outside = 0.0, _outside(tilted, v, masses, first, last)
        if last > first:
            masses = masses[first:last] * np.exp(scaled_factor(tilted, v, offset + first, last - first))
            evidence = masses.sum()
        if evidence < 1e-300:
            messages.masses[v], messages.offset[v] = np.ones(1), offset
            messages.evidence[v], messages.lost[v], messages.short[v] = -np.inf, 1.0, np.inf
            return
        log_evidence = np.log(evidence)
        messages.short[v] = outside / evidence
        lost = rounding / evidence + messages.short[v]
    begin, end, trimmed = trim(masses, tolerance)
    kept = masses[begin:end]
    messages.masses[v] = kept / kept.sum()
    messages.offset[v] = offset + first + begin
    messages.evidence[v] = log_evidence
    messages.lost[v] = lost + trimmed


@njit(cache=True)
def _sweep_up(position, end, plan, tilted, tolerance, messages, direct):
    """Work through `plan.order[position:end]` until a pair is too wide to convolve term by term; return where, and if so."""
    for place in range(position, end):
        v = plan.order[place]
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            _leaf(tilted, v, tolerance[v], messages)
        elif b < 0:
            _inner(tilted, v, messages.masses[a], messages.offset[a], 0.0, tolerance[v], messages)
        else:
            one, other = messages.masses[a], messages.masses[b]
            if min(len(one), len(other)) > direct:
                return place, True
            masses = convolve(one, other)
            _inner(tilted, v, masses, messages.offset[a] + messages.offset[b], 0.0, tolerance[v], messages)
    return end, False


@njit(cache=True)
def empty_messages(count):
    masses = List.empty_list(MASSES)
    for _ in range(count):
        masses.append(np.ones(1))
    return Messages(masses, np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros(count))


def upward(plan: PairPlan, tilted: Tilted, tolerance: Reals, direct: int = DIRECT) -> Messages:
    """Return the messages of all nodes; `tolerance` (nodes,) is the fraction each may leave out."""
    messages = empty_messages(len(plan.left))
    position = 0
    while position < len(plan.order):
        end = min(position + PIECE, len(plan.order))
        position, wide = _sweep_up(position, end, plan, tilted, tolerance, messages, direct)
        if not wide:
            continue
        v = plan.order[position]
        a, b = plan.left[v], plan.right[v]
        masses, rounding = _convolve_fast(messages.masses[a], messages.masses[b])
        offset = messages.offset[a] + messages.offset[b]
        _inner(tilted, v, masses, offset, rounding, tolerance[v], messages)
        position += 1
    return messages


def _convolve_fast(a: Reals, b: Reals) -> tuple[Reals, float]:
    """Convolve by FFT; also bound the mass of rounding errors."""
    masses = np.maximum(fftconvolve(a, b), 0.0)
    return masses, rounding_error(a, b) * len(masses)


def rounding_error(a: Reals, b: Reals) -> float:
    """Bound the error of each entry of a convolution by FFT (Higham 2002, section 24.1)."""
    depth = np.log2(2.0 * (len(a) + len(b)))
    largest = float(a.max()), float(b.max())  # squares of weights above 1e154 would overflow
    norms = [top * float(np.linalg.norm(x / top)) if top > 0 else 0.0 for x, top in zip((a, b), largest)]
    return 4 * float(np.finfo(float).eps) * depth * norms[0] * norms[1]


@njit(cache=True)
def above(plan, evidence, roots):
    """Return, for each node of the plan, the log evidence of all nodes above it; `roots` (k,) is known of the first k."""
    out = np.zeros(len(evidence))
    out[: len(roots)] = roots
    for place in range(len(plan.order) - 1, -1, -1):
        v = plan.order[place]
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[c] = out[v] + evidence[v]
    return out


@njit(cache=True)
def lost_below(plan, messages):
    """Return, for each node, what was left out of its message or of any below it, as a fraction of its message."""
    out = messages.lost.copy()
    for v in plan.order:
        for c in (plan.left[v], plan.right[v]):
            if c >= 0 and out[c] > 0.0:  # nothing lost stays nothing, however unlikely what is above
                out[v] += np.exp(-messages.evidence[v]) * out[c]
    return out
