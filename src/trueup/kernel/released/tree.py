"""Draws of noisy counts given true ones, and of true given noisy ones, for releases on a tree.

Each node v has a true count N_v and a noisy one, of which the release saw a_v = max(n_v, 0) (or a draw
from the posterior given n_v). The root was released as a_root; each other count k_v as its share of
a split of its parent's released count among the weights a_c of the parent's children. So given the
true counts the splits are independent, and given the noisy counts the true ones follow the
posterior of noisy counts on a tree. The chains alternate the two.

**Behind a mode**: of one split given N, the enter events of `trueup.kernel.released.exact` have masses that
are products of P(a_c in its interval | N_c): a draw of an event, of the others in their
intervals, and the rule for ties give an exact draw of all a_c. Then N given a has one factor per node.

**Behind a draw**: with `u_v ~ Gamma(k_v, sum a_c)` as in `trueup.kernel.released.draw` a node has the factor
`sum_a p(a | N) a^k e^{-u a}`, so the a_c are summed out: N given u, then a given both, then u.
"""

# pyright: reportCallIssue=false
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.released.draw import draw_window
from trueup.kernel.released.events import entering, interval
from trueup.kernel.released.exact import share_of_order

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

FIRST, SHUFFLED, DRAWN = 0, 1, 2
"""Codes of what was released: a mode with ties in order, one with shuffled ties, a multinomial draw."""

_TRIES = 10**6


class Weights(NamedTuple):
    """The masses of a weight given the true count, for each kind of node.

    Attributes
    ----------
    far
        (kinds, 2 w + 1) masses of `a - N`, where neither is small.
    edge
        (kinds, E + 1, C) masses of a = 0..E given N = 0..C - 1.
    kind
        (nodes,) kind of each node.
    """

    far: Reals
    edge: Reals
    kind: Integers


class ReleasedSplits(NamedTuple):
    """The splits that released positive counts, which are informative.

    Attributes
    ----------
    ptr, member
        Split g is among the nodes `member[ptr[g]:ptr[g + 1]]`, in the order of the release.
    even
        (splits,) chance of what was released if all weights were zero.
    """

    ptr: Integers
    member: Integers
    even: Reals


@njit(cache=True)
def mass(weights, kind, a, n):
    """Return the mass of a weight given the true count."""
    if a < weights.edge.shape[1]:
        return weights.edge[kind, a, n] if n < weights.edge.shape[2] else 0.0
    width = weights.far.shape[1] // 2
    return weights.far[kind, a - n + width] if abs(a - n) <= width else 0.0


@njit(cache=True)
def _log_weight(k, a, u):
    """Return the log of `a^k e^{-u a}`, relative to its value at a = k."""
    return -u * a if k == 0 else k * math.log(a / k) - u * (a - k)


@njit(cache=True)
def factors_of(weights, k, nodes, low, high, rate):
    """Return log factors of nodes on windows of weights, in one array: base, start and log values.

    A weight in a window of one is known; in a longer one it is worth `a^k e^{-rate a}`.
    """
    width = weights.far.shape[1] // 2
    base, start = np.empty(nodes.size, np.int64), np.zeros(nodes.size + 1, np.int64)
    for i in range(nodes.size):
        v = nodes[i]
        reach = width if low[v] >= weights.edge.shape[1] else max(width, weights.edge.shape[2] - 1)
        base[i] = max(low[v] - reach, 0)
        start[i + 1] = start[i] + high[v] + reach - base[i] + 1
    log = np.zeros(start[-1])
    for i in range(nodes.size):
        v = nodes[i]
        masses = log[start[i] : start[i + 1]]
        for a in range(low[v], high[v] + 1):
            worth = math.exp(_log_weight(k[v], a, rate[v])) if low[v] < high[v] else 1.0
            _add_masses(weights, weights.kind[v], a, worth, base[i], masses)
    return base, start, np.log(log)


@njit(cache=True)
def _add_masses(weights, kind, a, worth, base, masses):
    """Add `worth` times the masses of the weight `a` given each true count from `base` on to `masses`."""
    if a < weights.edge.shape[1]:
        for n in range(base, min(base + masses.size, weights.edge.shape[2])):
            masses[n - base] += worth * weights.edge[kind, a, n]
        return
    width = weights.far.shape[1] // 2
    for n in range(max(base, a - width), min(base + masses.size - 1, a + width) + 1):
        masses[n - base] += worth * weights.far[kind, a - n + width]


@njit(cache=True)
def windows_of(k, nodes, rate, low, high):
    """Write the windows of the weights of nodes given u, which contain nearly all of their mass."""
    for v in nodes:
        low[v], high[v] = draw_window(k[v], rate[v])


@njit(cache=True)
def draw_weights(weights, splits, release, k, true, noisy, rate, low, high, rng):
    """Draw the weights of each split that released a mode, and the rate of each that released a draw.

    Behind a mode `low = high` hold the weights; behind a draw `rate` holds u at the members of each split, and
    `low = high = 0` where all its weights were zero. `noisy` takes the weights either way. False if none lead
    to the release.
    """
    for g in range(splits.even.size):
        nodes = splits.member[splits.ptr[g] : splits.ptr[g + 1]]
        if release == DRAWN:
            _draw_rate(weights, nodes, splits.even[g], k, true, noisy, rate, low, high, rng)
        elif not _draw_mode(weights, nodes, splits.even[g], release, k, true, noisy, rng):
            return False
        else:
            low[nodes] = high[nodes] = noisy[nodes]
    return True


# --- behind a draw ----------------------------------------------------------------------------


@njit(cache=True)
def _draw_rate(weights, nodes, even, k, true, noisy, rate, low, high, rng):
    """Draw the weights of a split given true counts and its rate, then the rate given the weights."""
    trials, least, sum_a, log_odds = 0, 0, 0, 0.0
    for v in nodes:
        trials += k[v]
        least += max(k[v], 1)
    u = rate[nodes[0]]
    for v in nodes:
        first, last = draw_window(k[v], u)
        running = np.empty(last - first + 1)
        total = 0.0
        for a in range(first, last + 1):
            total += math.exp(_log_weight(k[v], a, u)) * mass(weights, weights.kind[v], a, true[v])
            running[a - first] = total
        log_odds += math.log(max(mass(weights, weights.kind[v], 0, true[v]), 1e-300))
        log_odds -= math.log(max(total, 1e-300)) - (k[v] * (u - math.log(k[v])) if k[v] > 0 else 0.0)
        noisy[v] = first + np.searchsorted(running, rng.random() * total, side="right")
        sum_a += noisy[v]
    if even > 0:
        log_odds += trials * math.log(least / nodes.size) - least * u
        odds = math.exp(min(log_odds, 700.0))
        if rng.random() * (1 + odds) < odds:
            noisy[nodes], sum_a = 0, 0
    empty = sum_a == 0
    u = rng.gamma(trials, 1.0) / (least if empty else sum_a)
    for v in nodes:
        rate[v] = u
        first, last = draw_window(k[v], u)
        low[v], high[v] = (0, 0) if empty else (first, last)


# --- behind a mode ----------------------------------------------------------------------------


@njit(cache=True)
def _draw_mode(weights, nodes, even, release, k, true, noisy, rng):
    """Draw weights of a split with mode k given true counts; return False if none are possible."""
    counts, given, kind = k[nodes], true[nodes], weights.kind[nodes]
    part, count, order, log_mass = _events(weights, kind, counts, given, release)
    log_even = -np.inf
    if even > 0:
        log_even = math.log(even)
        for r in range(counts.size):
            log_even += _log_between(weights, kind[r], given[r], 0, 0)
    top = max(log_even, log_mass.max() if log_mass.size else -np.inf)
    if top == -np.inf:
        return False
    running = np.cumsum(np.exp(np.append(log_mass, log_even) - top))
    drawn = np.empty(counts.size, np.int64)
    for _ in range(_TRIES):
        e = np.searchsorted(running, rng.random() * running[-1], side="right")
        if e >= part.size:
            noisy[nodes] = 0
            return True
        for r in range(counts.size):
            first, last = interval(counts, part[e], count[e], order[e], r)
            drawn[r] = _draw_between(weights, kind[r], given[r], first, last, rng)
        share = share_of_order(drawn, counts, order[e])
        if share == 1.0 or rng.random() < share:
            noisy[nodes] = drawn
            return True
    return False


@njit(cache=True)
def _events(weights, kind, k, true, release):
    """Return the events of a split that are possible given its true counts."""
    width = weights.far.shape[1] // 2
    first, last = entering(k, true - width, true + width)
    orders = 1 if release == SHUFFLED else 2
    size = orders * np.maximum(last - first + 1, 0).sum()
    part, count, order = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    log_mass, e = np.empty(size), 0
    for s in range(k.size):
        for a in range(first[s], last[s] + 1):
            for o in range(orders):
                part[e], count[e], order[e] = s, a, 2 if release == SHUFFLED else o
                log_mass[e] = _log_event(weights, kind, k, true, s, a, order[e])
                e += 1
    return part, count, order, log_mass


@njit(cache=True)
def _log_event(weights, kind, k, true, part, count, order):
    """Return the log of an event's mass given the true counts."""
    out = 0.0
    for r in range(k.size):
        low, high = interval(k, part, count, order, r)
        out += _log_between(weights, kind[r], true[r], low, high)
        if out == -np.inf:
            break
    return out


@njit(cache=True)
def _log_between(weights, kind, n, low, high):
    """Return the log probability that a weight lies in `low..high` given the true count."""
    width, total = weights.far.shape[1] // 2, 0.0
    for a in range(low if low == 0 else max(low, n - width), min(high, n + width) + 1):
        total += mass(weights, kind, a, n)
    return math.log(total) if total > 0 else -np.inf


@njit(cache=True)
def _draw_between(weights, kind, n, low, high, rng):
    """Draw a weight from low..high given the true count."""
    width = weights.far.shape[1] // 2
    first, last = low if low == 0 else max(low, n - width), min(high, n + width)
    left, best = rng.random() * math.exp(_log_between(weights, kind, n, low, high)), first
    for a in range(first, last + 1):
        share = mass(weights, kind, a, n)
        best = a if share > 0 else best
        left -= share
        if left < 0:
            break
    return best
