"""Exact messages on trees in which every count lies in a known, narrow window.

Rounded, perturbed and suppressed values bound their counts on both sides, so no window need be cut. Each
node's message is its factor times the convolution of its children's, taken one after the other; with the sums of the
first k children as states, forward and backward sums give every child's marginal, and one backward draw a table.

A published sum may lie so far from what its parts make probable that their convolution underflows there (a hundred counts
that are 0 to 4 under a flat prior, of a sum that is 0 to 9). Then the children's messages are tilted, multiplied by
exp(slope count), so that the mean of their sum lies in the parent's window. Given the sum a tilt changes nothing, so what is
read off the messages below the parent stays exact; the parent's own message is divided by exp(slope sum).

Work and memory of a parent grow with its children's number times the width of their sum: see `closed_work`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages.pmf import Factors, convolve, log_factor

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


class ClosedMessages(NamedTuple):
    """Messages up a tree of `n` nodes, on the known window of every node.

    Attributes
    ----------
    low, start, masses
        The first count of each node's window `(n,)`, where its masses start `(n + 1,)`, and the masses given all that
        is at and below the node, each node's sum 1; tilted alike for all children of a node.
    failed
        A node at which no counts are possible; -1 where there is none.
    """

    low: Integers
    start: Integers
    masses: Reals
    failed: int


MIN_WINDOW_PROBABILITY = 1e-150
"""Probability of a parent's window under its children's messages below which these are tilted."""
STEEPEST, HALVINGS = 600.0, 60


@njit(cache=True)
def closed_work(child_ptr, low, high):
    """Return the number of multiplications of one pass, and of the entries stored together at most."""
    work, most = 0.0, 0.0
    for v in range(len(low)):
        width, held = 0.0, 0.0
        for c in range(child_ptr[v], child_ptr[v + 1]):
            size = float(high[c] - low[c] + 1)
            work += size * max(width, 1.0)
            width += size
            held += width
        most = max(most, held)
    return work, most


def closed_up(child_ptr: Integers, factors: Factors, low: Integers, high: Integers) -> ClosedMessages:
    """Return the messages of all nodes of a tree, each on its own nonempty window `low..high`.

    Examples
    --------
    See `tests/inferring/test_perturbed.py`, which holds them against enumeration.
    """
    start = np.concatenate([[0], np.cumsum(high - low + 1)])
    masses = np.zeros(start[-1])
    return ClosedMessages(low, start, masses, int(_up(child_ptr, factors, low, start, masses)))


@njit(cache=True)
def _up(child_ptr, factors, low, start, masses):
    for v in range(len(low) - 1, -1, -1):
        log = log_factor(factors, v, low[v], start[v + 1] - start[v], 0.0)
        top = log.max()
        if top == -np.inf:
            return v
        own, slope = masses[start[v] : start[v + 1]], 0.0
        _exponents(log, top, own)
        if child_ptr[v] < child_ptr[v + 1]:
            _times_sum(child_ptr, low, start, masses, v, own, slope)
            if own.sum() < MIN_WINDOW_PROBABILITY:
                _exponents(log, top, own)
                slope = _tilt(child_ptr, low, start, masses, v)
                _times_sum(child_ptr, low, start, masses, v, own, slope)
        whole = own.sum()
        if not whole > 0.0:
            return v
        for i in range(len(own)):
            own[i] /= whole
    return -1


@njit(cache=True)
def _exponents(log, top, own):
    """Write the exponentials of logs, relative to the largest log, to `own`."""
    for i in range(len(own)):
        own[i] = np.exp(log[i] - top)


@njit(cache=True)
def _times_sum(child_ptr, low, start, masses, v, own, slope):
    """Multiply `own` by the masses of the sum of a node's children, and undo the tilt of these masses."""
    first, last = child_ptr[v], child_ptr[v + 1]
    total, bottom = masses[start[first] : start[first + 1]].copy(), low[first]
    for c in range(first + 1, last):
        total = convolve(total, masses[start[c] : start[c + 1]])
        bottom += low[c]
    for i in range(len(own)):
        j = low[v] + i - bottom
        away = i if slope > 0.0 else i - (len(own) - 1)
        own[i] *= total[j] if 0 <= j < len(total) else 0.0
        if slope != 0.0:
            own[i] *= np.exp(-slope * away)


@njit(cache=True)
def _tilt(child_ptr, low, start, masses, v):
    """Tilt the children's messages so that their mean sum lies in the middle of the parent's window; return the tilt."""
    middle, ends = low[v] + (start[v + 1] - start[v] - 1) / 2, np.array([-STEEPEST, STEEPEST])
    for _ in range(HALVINGS):
        slope, mean = ends.sum() / 2, 0.0
        for c in range(child_ptr[v], child_ptr[v + 1]):
            tilted = _tilted(masses[start[c] : start[c + 1]], slope)
            mean += low[c] + (tilted * np.arange(len(tilted))).sum()
        ends[1 if mean > middle else 0] = slope
    for c in range(child_ptr[v], child_ptr[v + 1]):
        masses[start[c] : start[c + 1]] = _tilted(masses[start[c] : start[c + 1]], slope)
    return slope


@njit(cache=True)
def _tilted(message, slope):
    """Return a message times `exp(slope count)`, scaled to the sum 1."""
    log = np.log(message) + slope * np.arange(len(message))
    found = np.exp(log - log.max())
    return found / found.sum()


@njit(cache=True)
def _forward(child_ptr, low, start, masses, v):
    """Convolve a parent's children one by one; return starts, masses and least counts of all partial sums."""
    first, last = child_ptr[v], child_ptr[v + 1]
    at, bottom = np.zeros(last - first + 1, np.int64), np.zeros(last - first, np.int64)
    width, least = 0, 0
    for k in range(last - first):
        c = first + k
        width += start[c + 1] - start[c] - (1 if k else 0)
        least += low[c]
        at[k + 1], bottom[k] = at[k] + width, least
    sums = np.zeros(at[-1])
    sums[: at[1]] = masses[start[first] : start[first + 1]]
    for k in range(1, last - first):
        c = first + k
        sums[at[k] : at[k + 1]] = convolve(sums[at[k - 1] : at[k]], masses[start[c] : start[c + 1]])
    return at, sums, bottom


@njit(cache=True)
def closed_marginals(child_ptr, low, start, masses, roots):
    """Return the marginal masses of every node in the layout of the messages, given those of the roots."""
    out = np.zeros(len(masses))
    out[: len(roots)] = roots
    for v in range(len(low)):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            continue
        at, sums, bottom = _forward(child_ptr, low, start, masses, v)
        n = last - first
        behind = np.zeros(at[n] - at[n - 1])
        for i in range(start[v + 1] - start[v]):  # what all but the children say of their sum
            j = low[v] + i - bottom[n - 1]
            if 0 <= j < len(behind) and sums[at[n - 1] + j] > 0.0:
                behind[j] = out[start[v] + i] / sums[at[n - 1] + j]
        for k in range(n - 1, 0, -1):
            c = first + k
            size, before = start[c + 1] - start[c], at[k] - at[k - 1]
            ahead = np.zeros(before)
            for x in range(size):
                mass, total = masses[start[c] + x], 0.0
                for s in range(before):
                    total += sums[at[k - 1] + s] * behind[s + x]
                    ahead[s] += mass * behind[s + x]
                out[start[c] + x] = mass * total
            behind = ahead
        for x in range(start[first + 1] - start[first]):
            out[start[first] + x] = masses[start[first] + x] * behind[x]
        for c in range(first, last):
            whole = out[start[c] : start[c + 1]].sum()
            for x in range(start[c], start[c + 1]):
                out[x] /= whole
    return out


@njit(cache=True)
def closed_draws(rng, child_ptr, low, start, masses, roots):
    """Return independent draws `(draws, n)` of all nodes, given draws `(draws, k)` of the `k` roots."""
    draws = len(roots)
    counts = np.zeros((draws, len(low)), np.int64)
    counts[:, : roots.shape[1]] = roots
    for v in range(len(low)):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first == last:
            continue
        at, sums, bottom = _forward(child_ptr, low, start, masses, v)
        room = np.empty(np.diff(start[first : last + 1]).max())
        for d in range(draws):
            left = counts[d, v]
            for k in range(last - first - 1, 0, -1):
                c = first + k
                weights = room[: start[c + 1] - start[c]]
                weights[:] = 0.0
                ahead = left - low[c] - bottom[k - 1]
                for x in range(max(0, ahead - (at[k] - at[k - 1]) + 1), min(len(weights), ahead + 1)):
                    weights[x] = masses[start[c] + x] * sums[at[k - 1] + ahead - x]
                counts[d, c] = low[c] + _draw_position(rng, weights)
                left -= counts[d, c]
            counts[d, first] = left
    return counts


@njit(cache=True)
def root_draws(rng, low, masses, draws):
    """Return independent draws `(draws, 1)` of a count with masses from `low` on."""
    counts = np.zeros((draws, 1), np.int64)
    for d in range(draws):
        counts[d, 0] = low + _draw_position(rng, masses)
    return counts


@njit(cache=True)
def _draw_position(rng, weights):
    """Draw a position with probability proportional to its weight."""
    left = rng.random() * weights.sum()
    last = 0
    for i in range(len(weights)):
        if weights[i] > 0.0:
            last = i
            left -= weights[i]
            if left < 0.0:
                return i
    return last
