"""Messages up a tree: the mass of every node's count given all measurements at and below the node.

One file: what messages hold, and the one sweep that fills them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.typed import List
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import PairPlan
from trueup.kernel.messages.pmf import Factors, convolve, fft_convolve, log_factor, trim
from trueup.kernel.messages.tails import (
    MIN_LOG_MASS,
    PROBES,
    add_logs,
    beyond,
    cut_away,
    cut_off,
    everywhere,
    highest_beyond,
    landed,
    landed_growth,
    largest_of,
    log_growth,
    log_largest,
    outside,
    share_of,
    vanished,
)

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

DIRECT = 1500
"""Windows narrower than this are convolved term by term; wider pairs by FFT, whose rounding counts as lost."""

NODES_A_CALL = 512
"""Nodes after which compiled code returns to Python, which can then be interrupted."""

MASSES = types.float64[::1]


class Tilted(NamedTuple):
    """Factors of `n` nodes on finite windows, each multiplied by `exp(slope count - top)`.

    Attributes
    ----------
    low, high
        (n,) windows.
    floor, ceiling
        (n,) what is known for certain.
    informs
        (n,) marks inner nodes that have a factor of their own.
    probes, asked
        (n, PROBES) tilts at which the growth of the sum of a node's parts is wanted, and its parent's: the growth of
        its own message; see `trueup.kernel.messages.tails`.
    given, lost
        (n, PROBES) of leaves that stand for what is below them, their growth, and the log of which fraction of it was lost; NaN
        and minus infinity of others.
    pointwise
        (n,) marks leaves whose growth is that of their largest value, not of their sum.
    proper
        (n,) marks nodes whose parts have splits that sum to 1.
    above
        (n,) tilt of the node's message: the sum of all slopes from its own up.
    largest
        (n,) log of what the node's tables are at most; of leaves that stand for what is below them, `Messages.largest`.
    """

    factors: Factors
    low: Integers
    high: Integers
    floor: Integers
    ceiling: Integers
    slope: Reals
    top: Reals
    informs: NDArray[np.bool_]
    probes: Reals
    asked: Reals
    given: Reals
    lost: Reals
    pointwise: NDArray[np.bool_]
    proper: NDArray[np.bool_]
    above: Reals
    largest: Reals


class Messages(NamedTuple):
    """Masses of every node's count given all measurements at and below it, and bounds on lost mass.

    Attributes
    ----------
    masses
        One normalised array per node of the plan; entry 0 is the count `offset`.
    offset
        (nodes,) counts.
    evidence
        (nodes,) `log c_a` of the note in `trueup.kernel.messages.solve`; 0 for sums without a factor, the log
        of its scaled mass at a leaf. With all `top` their sum is the log evidence of the values.
    short
        (nodes,) fraction of each message outside the node's own tables, or outside what its parts' windows add up to.
    passed
        (nodes,) log of how much less of the message than of the sum of its parts is lost; 0 without a factor.
    growth
        (nodes, PROBES) log of the sum of the message times `exp(theta count)`, from above, at the tilts `asked`.
    gone
        (nodes, PROBES) log of which fraction of that was lost here or below, at most: what is next to nothing at a steep tilt may
        be all at another.
    asked
        (nodes, PROBES) the tilts.
    largest
        (nodes,) log of what the message is at most, at any count, as a multiple of the tilted split `w(count; alpha)
        exp(above count)`; of sums of parts, as one of all their splits. Infinite where it is not known.
    """

    masses: List
    offset: Integers
    evidence: Reals
    short: Reals
    passed: Reals
    growth: Reals
    gone: Reals
    asked: Reals
    largest: Reals


@njit(cache=True)
def scaled_factor(tilted, v, low, size):
    """Return the log of a node's tilted factor on a window, minus its largest value."""
    return log_factor(tilted.factors, v, low, size, tilted.slope[v]) - tilted.top[v]


@njit(cache=True)
def _leaf(tilted, v, tolerance, messages):
    """Store the message of a leaf: its own factor without negligible ends, scaled to the sum 1."""
    log = scaled_factor(tilted, v, tilted.low[v], tilted.high[v] - tilted.low[v] + 1)
    masses = np.exp(log)
    total = masses.sum()
    if total < 1e-300:
        _impossible(v, tilted.low[v], messages)
        return
    first, last, _ = trim(masses, tolerance)
    kept = masses[first:last]
    messages.masses[v] = kept / kept.sum()
    messages.offset[v] = tilted.low[v] + first
    messages.evidence[v] = np.log(total)
    messages.largest[v] = tilted.largest[v] - tilted.top[v] - np.log(total)
    asked, growth, gone = tilted.asked[v], messages.growth[v], tilted.lost[v].copy()
    messages.asked[v] = asked
    for j in range(PROBES):
        if tilted.pointwise[v]:
            past, inside = highest_beyond(tilted, v, asked[j]), log_largest(masses, tilted.low[v], asked[j])
        else:
            past, inside = beyond(tilted, v, asked[j]), log_growth(masses, tilted.low[v], asked[j])
        past, inside = past - np.log(total), inside - np.log(total)
        lost = add_logs(past, vanished(log, tilted.low[v], asked[j]) - np.log(total))
        growth[j] = add_logs(inside, lost) if np.isnan(tilted.given[v, j]) else tilted.given[v, j]
        if j == 0:
            messages.short[v] = np.exp(share_of(past, growth[j]))
        gone[j] = add_logs(gone[j], share_of(lost, growth[j]))
    cut_off(masses / total, tilted.low[v], first, last, asked, growth, gone)
    messages.gone[v] = gone


@njit(cache=True)
def _impossible(v, offset, messages):
    messages.masses[v], messages.offset[v] = np.ones(1), offset
    messages.evidence[v], messages.passed[v] = -np.inf, -np.inf
    messages.short[v] = np.inf
    messages.gone[v, :] = np.inf
    messages.largest[v] = np.inf


@njit(cache=True)
def _inner(tilted, v, masses, offset, rounding, tolerance, messages, a, b):
    """Store the message of the sum of parts `a` and `b`, times the factor of their parent.

    `rounding` bounds the log of the mass of rounding errors at every count.
    """
    probes, growth, gone = messages.asked[a], messages.growth[a].copy(), messages.gone[a].copy()
    largest = messages.largest[a]
    if b >= 0:
        growth += messages.growth[b]
        largest += messages.largest[b]
        for j in range(PROBES):
            gone[j] = add_logs(gone[j], messages.gone[b, j])
    if v < len(tilted.low) and not tilted.proper[v]:
        largest = np.inf
    for j in range(PROBES):
        moved = everywhere(rounding, offset, offset + len(masses) - 1, probes[j]) - growth[j]
        if (
            rounding <= MIN_LOG_MASS
        ):  # what numbers are too small for was part of the sum; what rounding adds is not
            moved = min(moved, 0.0)
        gone[j] = add_logs(gone[j], moved)
    own = messages.growth[v]
    own[:], messages.asked[v], messages.largest[v] = growth, probes, largest
    if v < len(tilted.low) and tilted.informs[v]:
        first = max(tilted.low[v] - offset, 0)
        last = min(tilted.high[v] - offset + 1, len(masses))
        if last <= first:
            _impossible(v, offset, messages)
            return
        log = scaled_factor(tilted, v, offset + first, last - first)
        kept = np.log(masses[first:last]) + log  # a factor may rise towards an end where next to no mass is
        top = kept.max()
        if not top > -np.inf:
            _impossible(v, offset, messages)
            return
        logs = kept - top
        kept = np.exp(logs)
        scale, before, heights = top + np.log(kept.sum()), gone[0], growth + gone
        low, high = offset + first, offset + last - 1
        asked = tilted.asked[v]
        messages.asked[v] = asked
        most = landed(log, low, heights, probes)
        landing = landed_growth(most, low, asked) - scale
        messages.largest[v] = largest_of(tilted, v, kept, top, most, heights, largest, low, high) - scale
        gone, cuts = np.full(PROBES, -np.inf), np.empty(PROBES)
        cut_away(tilted, v, asked, masses, offset, low, high, cuts)
        for j in range(PROBES):
            cut = add_logs(cuts[j], outside(tilted, v, asked[j], heights, largest, low, high)) - scale
            if j == 0:
                messages.short[v] = np.exp(min(cut, 700.0))
            lost = add_logs(add_logs(landing[j], cut), vanished(logs, low, asked[j]) + top - scale)
            own[j] = add_logs(log_growth(kept, low, asked[j]) + top - scale, lost)
            gone[j] = share_of(lost, own[j])
        masses, offset = kept / kept.sum(), low
        messages.evidence[v] = scale
        landed_all = before > -np.inf and np.isfinite(landing[0])
        messages.passed[v] = min(before - landing[0], 0.0) if landed_all else 0.0
    begin, end, _ = trim(masses, tolerance)
    kept = masses[begin:end]
    messages.masses[v] = kept / kept.sum()
    messages.offset[v] = offset + begin
    cut_off(masses, offset, begin, end, messages.asked[v], own, gone)
    messages.gone[v] = gone


@njit(cache=True)
def _sweep_up(position, end, plan, tilted, tolerance, messages, direct):
    """Send messages up until a pair is too wide for direct convolution; return the position reached."""
    for place in range(position, end):
        v = plan.order[place]
        a, b = plan.left[v], plan.right[v]
        if a < 0:
            _leaf(tilted, v, tolerance[v], messages)
        elif b < 0:
            _inner(tilted, v, messages.masses[a], messages.offset[a], -np.inf, tolerance[v], messages, a, b)
        else:
            one, other = messages.masses[a], messages.masses[b]
            if min(len(one), len(other)) > direct:
                return place, True
            masses = convolve(one, other)
            offset = messages.offset[a] + messages.offset[b]
            _inner(tilted, v, masses, offset, MIN_LOG_MASS, tolerance[v], messages, a, b)
    return end, False


@njit(cache=True)
def array_of(arrays, v):
    """Return one array of a list.

    Numba recompiles `arrays[v]` in every process.
    """
    return arrays[v]


@njit(cache=True)
def set_array(arrays, v, one):
    """Replace one array of a list of arrays."""
    arrays[v] = one


@njit(cache=True)
def count_products(plan, masses):
    """Return the number of multiplications in direct convolutions of all pairs."""
    count = 0.0
    for v in plan.order:
        if plan.right[v] >= 0:
            count += float(len(masses[plan.left[v]])) * len(masses[plan.right[v]])
    return count


@njit(cache=True)
def _ones(count):
    """Return the masses of messages that hold one count each."""
    masses = List.empty_list(MASSES)
    for _ in range(count):
        masses.append(np.ones(1))
    return masses


@njit(cache=True)
def _copied(masses):
    """Return a list of the same arrays, some of which may then be replaced."""
    copy = List.empty_list(MASSES)
    for one in masses:
        copy.append(one)
    return copy


def empty_messages(count: int) -> Messages:
    """Return messages of nodes of which nothing is known yet."""
    each, of_probes = np.zeros((4, count)), np.zeros((3, count, PROBES))
    return Messages._make((_ones(count), np.zeros(count, np.int64), *each[:3], *of_probes, each[3]))


def upward(
    plan: PairPlan, tilted: Tilted, tolerance: Reals, direct: int = DIRECT, known: Messages | None = None
) -> Messages:
    """Return the messages of all nodes, each of which leaves out at most its `tolerance` of mass.

    Nodes that `plan.order` leaves out keep those that are `known`.
    """
    if known is None:
        messages = empty_messages(len(plan.left))
    else:
        messages = known._make((_copied(known.masses), *(field.copy() for field in known[1:])))
    position = 0
    while position < len(plan.order):
        end = min(position + NODES_A_CALL, len(plan.order))
        position, wide = _sweep_up(position, end, plan, tilted, tolerance, messages, direct)
        if not wide:
            continue
        v = plan.order[position]
        a, b = plan.left[v], plan.right[v]
        masses, rounding = _convolve_fast(array_of(messages.masses, a), array_of(messages.masses, b))
        offset = messages.offset[a] + messages.offset[b]
        _inner(tilted, v, masses, offset, np.log(max(rounding, 1e-300)), tolerance[v], messages, a, b)
        position += 1
    return messages


OVERFLOWING = np.errstate(over="ignore", invalid="ignore")
"""Messages of parameters far off may overflow; what is not finite is looked for where the parameters were chosen."""


@OVERFLOWING
def _convolve_fast(a: Reals, b: Reals) -> tuple[Reals, float]:
    """Return the convolution of two masses by FFT, with a bound on the rounding error of each entry."""
    masses = np.maximum(fft_convolve(a, b), 0.0)
    return masses, rounding_error(a, b)


@OVERFLOWING
def rounding_error(a: Reals, b: Reals) -> float:
    """Return bounds on each entry's error in a convolution by FFT (Higham 2002, section 24.1)."""
    depth = np.log2(2.0 * (len(a) + len(b)))
    largest = float(a.max()), float(b.max())  # squares of weights above 1e154 would overflow
    norms = [top * float(np.linalg.norm(x / top)) if top > 0 else 0.0 for x, top in zip((a, b), largest)]
    return 4 * float(np.finfo(float).eps) * depth * norms[0] * norms[1]
