"""The hierarchical prior of a family of tables, and the Markov chain moves of its parameters.

Every table has a product of Dirichlet-multinomial laws, step by step: what the table shares with its parent in the junction
tree (for the root, the number of all records) is divided among the places of the next level, and so on down to the table's
own, whose counts are divided among the values of its other attributes. With weights w that add up to W,

    S! / prod x!  Gamma(W a) / Gamma(S + W a)  prod Gamma(x + w a) / Gamma(w a).

Each step has one concentration `a`: places differ more than values within a place do, or less. Its log moves by random-walk
steps under the standard logistic law: `a / (1 + a)` is uniform. Places have weights of 1. So have values where a table has one
place; elsewhere their shares are common to all places, drawn too, and uniform before: else sums over places would be drawn
towards equal shares as often as there are places. So are shares of places that are a table's last parts and are divided for each
of several values. A pair of shares moves at a time, by a random-walk step of its log odds.
"""

from __future__ import annotations

import math

from trueup.kernel.compiled import njit

LOG_STEP = 0.5
"""Standard deviation of a step of the log of a concentration."""
SHARE_STEP, SHARE_SCALES = 2.0, 7.0
"""Largest standard deviation of a step of the log odds of two shares, which is halved up to so many times at random."""


@njit(cache=True)
def _part_rise(before, k, a):
    """Return the change of `log Gamma(x + a) / x!` if x increases by k."""
    after = before + k
    return (math.lgamma(after + a) - math.lgamma(after + 1.0)) - (
        math.lgamma(before + a) - math.lgamma(before + 1.0)
    )


@njit(cache=True)
def prior_rise(layout, state, table, cell, other, k):
    """Return the change of the log prior if a cell and all sums that contain it increase by k (while `other` loses k)."""
    total, first = 0.0, layout.steps[table]
    last = layout.steps[table + 1] - first - 1
    for s in range(last + 1):
        g, a = layout.group[cell, s], state.alpha[first + s]
        if other < 0 or layout.group[other, s] != g:
            total -= _part_rise(state.held[g], k, state.mass[g] * a)
        if s == last:
            total += _part_rise(state.x[cell], k, state.weights[layout.value[cell]] * a)
        elif other < 0 or layout.group[other, s + 1] != layout.group[cell, s + 1]:
            total += _part_rise(state.held[layout.group[cell, s + 1]], k, a)
    return total


@njit(cache=True)
def _log_step(layout, state, table, step, log_a):
    """Return the log prior of one step's counts plus that of its log concentration (a logistic law)."""
    a, total = math.exp(log_a), log_a - 2.0 * math.log1p(math.exp(log_a))
    for g in range(layout.sums_ptr[step], layout.sums_ptr[step + 1]):
        if state.held[g] > 0.0:
            total -= math.lgamma(state.held[g] + state.mass[g] * a) - math.lgamma(state.mass[g] * a)
    if step + 1 < layout.steps[table + 1]:
        for g in range(layout.sums_ptr[step + 1], layout.sums_ptr[step + 2]):
            if state.held[g] > 0.0:
                total += math.lgamma(state.held[g] + a) - math.lgamma(a)
        return total
    for cell in range(layout.start[table], layout.start[table + 1]):
        if state.x[cell] > 0:
            w = a * state.weights[layout.value[cell]]
            total += math.lgamma(state.x[cell] + w) - math.lgamma(w)
    return total


@njit(cache=True)
def move_concentrations(rng, layout, state):
    """Move the log concentration of every step (Metropolis)."""
    for table in range(layout.steps.size - 1):
        for step in range(layout.steps[table], layout.steps[table + 1]):
            now = math.log(state.alpha[step])
            then = now + LOG_STEP * rng.standard_normal()
            gain = _log_step(layout, state, table, step, then) - _log_step(layout, state, table, step, now)
            if gain >= 0.0 or math.log(1.0 - rng.random()) < gain:
                state.alpha[step] = math.exp(then)


@njit(cache=True)
def _share_rise(layout, state, cell, before, after, a):
    """Return the change of the log prior term of one cell if the cell's weight changes."""
    x = state.x[cell]
    if x == 0:
        return 0.0
    return (math.lgamma(x + a * after) - math.lgamma(a * after)) - (
        math.lgamma(x + a * before) - math.lgamma(a * before)
    )


@njit(cache=True)
def _mass_rise(state, g, more, a):
    """Return the change of a sum's log prior term if the total weight of its parts increases."""
    before, after = a * state.mass[g], a * (state.mass[g] + more)
    held = state.held[g]
    return (math.lgamma(held + before) - math.lgamma(before)) - (
        math.lgamma(held + after) - math.lgamma(after)
    )


@njit(cache=True)
def _move_pair(rng, layout, state, table, v, w):
    """Propose to move weight between two values of a table, by a random step of their log odds."""
    own, other = state.weights[v], state.weights[w]
    both = own + other
    scale = SHARE_STEP * 0.5 ** (SHARE_SCALES * rng.random())
    odds = math.log(own / other) + scale * rng.standard_normal()
    more = both / (1.0 + math.exp(-odds))
    less = both - more
    if more <= 1e-12 * both or less <= 1e-12 * both:
        return
    step = layout.steps[table + 1] - 1
    last, a = step - layout.steps[table], state.alpha[step]
    gain = math.log(more * less) - math.log(own * other)
    first, size = layout.start[table], layout.value_ptr[table + 1] - layout.value_ptr[table]
    apart, cells = layout.apart[table], layout.start[table + 1] - first
    one, two = apart * (v - layout.value_ptr[table]), apart * (w - layout.value_ptr[table])
    stop, on = (first + cells, size) if apart == 1 else (first + apart, 1)
    for begin in range(first, stop, on):
        gain += _share_rise(layout, state, begin + one, own, more, a)
        gain += _share_rise(layout, state, begin + two, other, less, a)
        uneven = layout.is_open[begin + one] - layout.is_open[begin + two]
        if uneven != 0:
            gain += _mass_rise(state, layout.group[begin + one, last], uneven * (more - own), a)
    if not (gain >= 0.0 or math.log(1.0 - rng.random()) < gain):
        return
    state.weights[v], state.weights[w] = more, less
    for begin in range(first, stop, on):
        uneven = layout.is_open[begin + one] - layout.is_open[begin + two]
        state.mass[layout.group[begin + one, last]] += uneven * (more - own)


@njit(cache=True)
def move_shares(rng, layout, state):
    """Propose moves of the estimated shares of every table, about one move for each share."""
    for table in range(layout.steps.size - 1):
        for b in range(layout.block_ptr[table], layout.block_ptr[table + 1] - 1):
            first, size = layout.blocks[b], layout.blocks[b + 1] - layout.blocks[b]
            for _ in range(size if size > 1 else 0):
                v = int(rng.random() * size)
                w = (v + 1 + int(rng.random() * (size - 1))) % size
                _move_pair(
                    rng, layout, state, table, layout.in_blocks[first + v], layout.in_blocks[first + w]
                )
