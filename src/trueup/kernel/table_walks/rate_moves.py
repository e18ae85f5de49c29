"""Joint moves of the prior's gamma rates and of counts, for posteriors too wide for single columns.

Given the counts, compositions and sizes are known to about the root of a count, and given these so are the counts. Where noise
says less, a chain that draws either given the other takes steps of sqrt(count) in a posterior as wide as the noise, which
it crosses in noise^2 / count sweeps. Here both move at once. `rates` has the gamma numbers that make counts multinomial.

*Counts that follow.* Where multinomial probabilities change from p to p', each person of a cell i that loses leaves it with
probability `1 - p'_i / p_i`, and those who leave go to the cells that gain in proportion to `p'_j - p_j`. On average over the
law as many go from i to j as would come back: `p_i (1 - p'_i / p_i) (p'_j - p_j)` is the same both ways, but for a factor that
is. So probabilities and counts may be proposed together, and the ratio of Metropolis and Hastings has the prior of
the numbers and the noise alone. Poisson counts of the root lose and gain in the same way.

*Gamma numbers that follow.* Where the shape of Gamma(b) changes to b', the number gains an independent Gamma(b' - b), or
keeps a Beta(b', b - b') share: the law of the pair is symmetric too. So a change of a place's composition is passed on to
all compositions below it, to g and to counts, and the ratio has the prior of that one composition and the noise.

Five moves. *A total*: the rate of a place and of all above it change by as much. With the numbers as rates R, where those of
a place's C parts add up to its own, their density is `R^(1 - C a)` times the product of the parts' `R^(a - 1)`. *An exchange*
between two parts of a place, of constant sum: the log odds take a normal step, from themselves or from their negative, which
lets two places change roles. *Who is inhabited*: an uninhabited lowest place takes a share b of a sibling's number, of
density `1 / (b L)`, or an inhabited one leaves all to it. With I inhabited ones before, W the sibling's share of their parent
and w the rate, the ratio is `(1 - w) / w Gamma((I + 1) a) / (Gamma(I a) Gamma(a)) (b (1 - b))^(a - 1) W^a b L` times that of
the noise, where all weights are 1. *A column* of the composition of one place takes a normal step of its log. So does a
*concentration* of a column at one level, the gamma numbers around all its places with it. What the steps' scales depend on is
kept by the moves.

Here too: sweeps of a chain on histograms of a hierarchy, which take these moves and all others in turn.

One file: the five moves are ratios of one density.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import copy_table, njit
from trueup.kernel.table_walks.columns import column_sweep
from trueup.kernel.table_walks.compositions import MAX_LOG_CONCENTRATION, draw_prior
from trueup.kernel.table_walks.gibbs_steps import EVEN, TINY
from trueup.kernel.table_walks.rates import (
    Rates,
    arrive,
    change,
    draw_rates_of_places,
    draw_sizes,
    draw_sizes_from,
    fill,
    find_places,
    how_many_go,
    leave,
    log_noise,
    settle_change,
)
from trueup.kernel.table_walks.weights import parts

MIN_LOG_SCALE, USUAL_LOG_SCALE, MAX_LOG_SCALE = 1e-3, 0.05, 3.0
"""Least scale of a step of a log, that where nothing says how wide noise is, and the largest."""
COLUMNS = 64
"""Columns of a place that are moved at a time, at random where there are more: each takes time that grows with their number."""
MAX_TOTAL_STEP_SDS = 3.0
"""Largest step of a total, in standard deviations of the noise."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _random_scale(rng, least):
    """Return a random standard deviation of a step of a log, log-uniform from `least` on."""
    least = min(max(least, MIN_LOG_SCALE), MAX_LOG_SCALE)
    return least * (MAX_LOG_SCALE / least) ** rng.random()


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _rate(places, rates, v):
    """Compute the rates of a place and of all places above it; return the rate of the place."""
    rate, u = 1.0, v
    while u > 0:
        p = places.parent[u]
        rates.rate[u] = rates.share[u] / rates.whole[p] if rates.share[u] > 0.0 else 0.0
        rate *= rates.rate[u]
        u = p
    own, u = rates.share[0] * rate, v
    above = own
    while u >= 0:
        part = rates.rate[u]
        rates.rate[u] = above
        above = above / part if u > 0 and part > 0.0 else above
        u = places.parent[u]
    return own


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_of_rates(places, state, rates, level, v, step):
    """Return the log ratio of the prior density of rates, after and before a step at a place."""
    log, u = 0.0, v
    for at in range(level, -1, -1):
        power = state.a[at] * state.weight[u] - 1.0 if at > 0 else 0.0
        if at < level:
            power += 1.0 - parts(places, state, u) * state.a[at + 1]
        log += power * math.log1p(step / rates.rate[u])
        u = places.parent[u]
    return log


@njit(cache=True, error_model="numpy")
def _move_total(rng, places, tables, state, rates, level, v, noise):
    """Propose a new total of a place, and change the totals of all places above it."""
    rate = _rate(places, rates, v)
    if not rate > 0.0:
        return
    log, well = 0.0, True
    if rng.random() < 0.5:
        move = _random_scale(rng, USUAL_LOG_SCALE) * rng.normal()
        step, log = rate * math.expm1(move), move
    else:
        step = (MAX_TOTAL_STEP_SDS * noise + 1.0) ** rng.random() * rng.normal()
    if not rate + step > 0.0:
        return
    log += _log_of_rates(places, state, rates, level, v, step)
    if step < 0.0:
        leave(rng, places, tables, state, rates, level, v, -step / rate)
    else:
        count = rng.poisson(step)
        well = count == 0 or arrive(rng, places, tables, state, rates, level, v, count)
    taken = well and math.log(1.0 - rng.random()) < log + log_noise(tables, state, rates)
    settle_change(places, state, rates, taken)
    while taken and v >= 0:
        fresh = rates.share[v] * (1.0 + step / rates.rate[v])
        if v > 0:
            rates.whole[places.parent[v]] += fresh - rates.share[v]
        rates.share[v] = fresh
        v = places.parent[v]


@njit(cache=True, error_model="numpy", _nrt=False)
def _exchange(rng, places, tables, state, rates, level, one, other, noise):
    """Propose to exchange rate and persons between two parts of a place."""
    count, whole = state.total[one] + state.total[other], rates.share[one] + rates.share[other]
    if count == 0 or not min(rates.share[one], rates.share[other]) > 0.0:
        return
    odds = math.log(rates.share[one]) - math.log(rates.share[other])
    about = odds if rng.random() < 0.5 else -odds
    fresh = about + _random_scale(rng, noise / count) * rng.normal()
    if fresh > odds:
        one, other, odds, fresh = other, one, -odds, -fresh
    mine, others = whole / (1.0 + math.exp(-fresh)), whole / (1.0 + math.exp(fresh))
    if not mine > 0.0:
        return
    log = state.weight[one] * (math.log(mine) - math.log(rates.share[one]))
    log += state.weight[other] * (math.log(others) - math.log(rates.share[other]))
    log *= state.a[level]
    gone = leave(rng, places, tables, state, rates, level, one, max(1.0 - mine / rates.share[one], 0.0))
    well = gone == 0 or arrive(rng, places, tables, state, rates, level, other, gone)
    taken = well and math.log(1.0 - rng.random()) < log + log_noise(tables, state, rates)
    settle_change(places, state, rates, taken)
    if taken:
        rates.share[one], rates.share[other] = mine, others


@njit(cache=True, error_model="numpy", _nrt=False)
def _inhabit(rng, places, tables, state, rates, v, other):
    """Propose that an empty lowest place and an inhabited sibling of it exchange persons."""
    first, p, last = places.level_ptr[-2], places.parent[v], places.level_ptr.size - 2
    rate, born = state.rate[p - places.level_ptr[-3]], not state.inhabited[v - first]
    a, whole = state.a[last] * state.weight[v], state.a[last] * parts(places, state, p)
    both = rates.share[other] + rates.share[v]
    if not rate > 0.0 or not state.inhabited[other - first] or not both > 0.0:
        return
    long = math.log(2.0 * (state.total[v] + state.total[other] + 1.0))
    share = math.exp(-long * rng.random()) if born else rates.share[v] / both
    if not math.exp(-long) <= share < 1.0:
        return
    others = whole if born else max(whole - a, TINY)
    log = math.log1p(-rate) - math.log(rate) + math.lgamma(others + a) - math.lgamma(others) - math.lgamma(a)
    log += (a - 1.0) * math.log(share) + (state.a[last] * state.weight[other] - 1.0) * math.log1p(-share)
    log += a * math.log(both / rates.whole[p])
    log += math.log(share * long)
    gone, well = (
        leave(rng, places, tables, state, rates, last, other if born else v, share if born else 1.0),
        True,
    )
    if gone > 0:
        well = arrive(rng, places, tables, state, rates, last, v if born else other, gone)
    log = (log if born else -log) + log_noise(tables, state, rates)
    taken = well and math.log(1.0 - rng.random()) < log
    settle_change(places, state, rates, taken)
    if taken:
        state.inhabited[v - first] = born
        rates.share[v] = share * both if born else 0.0
        rates.share[other] = both - rates.share[v]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _follow(rng, value, old, new):
    """Draw a gamma variable of shape `new`, given `value`, a gamma variable of shape `old`."""
    if new > old:
        return value + rng.standard_gamma(new - old)
    if new == old:
        return value
    kept, lost = rng.standard_gamma(new), rng.standard_gamma(old - new)
    if kept + lost > 0.0:
        return value * kept / (kept + lost)
    return value if rng.random() * old < new else TINY


@njit(cache=True, error_model="numpy", _nrt=False)
def _pass_on(rng, places, state, rates, level, low, high, j, fresh):
    """Pass the change of a column on to the compositions and gamma variables of places below.

    `fresh` is the concentration of the column at the next level, which may change, too.
    """
    last, first = places.level_ptr.size - 2, places.level_ptr[-2]
    for below in range(level + 1, last + 1):
        low, high, kappa = places.child_ptr[low], places.child_ptr[high], state.kappa[below, j]
        for u in range(low, high):
            p = places.parent[u]
            old, new = max(kappa * state.theta[p, j], TINY), max(fresh * rates.theta[p], TINY)
            if below == last:
                rates.fresh[u - first] = _follow(rng, rates.cell[u - first, j] * kappa, old, new) / fresh
            else:
                number = state.theta[u, j] * kappa / state.factor[u, j]
                number = _follow(rng, number, old + EVEN, new + EVEN)
                rates.theta[u] = max(number * state.factor[u, j] / fresh, TINY)
        fresh = state.kappa[below + 1, j] if below < last else 0.0
    return low - first, high - first


@njit(cache=True, error_model="numpy", _nrt=False)
def _relabel(rng, tables, state, rates, row, j):
    """Move a lowest place's persons among cells after a gamma variable changed; return False on failure."""
    old, new, rest = rates.cell[row, j], rates.fresh[row], 0.0
    for i in range(rates.cell.shape[1]):
        rest += rates.cell[row, i] if i != j else 0.0
    if new > old:
        gone = 0
        for i in range(rates.cell.shape[1]):
            by = how_many_go(rng, state.x[row, i], new - old, rest + new) if i != j else 0
            if by > 0:
                change(tables, rates, row, i, -by)
                gone += by
        if gone > 0:
            change(tables, rates, row, j, gone)
        return True
    stay = new * (rest + old) / (old * (rest + new)) if old > 0.0 else 1.0
    gone = how_many_go(rng, state.x[row, j], max(1.0 - stay, 0.0), 1.0)
    if gone == 0:
        return True
    change(tables, rates, row, j, -gone)
    return fill(rng, tables, rates, row, j, gone)


@njit(cache=True, error_model="numpy", _nrt=False)
def _move_column(rng, places, tables, state, rates, open_, level, v, j, noise):
    """Propose a new share of a column at a place, and change all places below it accordingly."""
    old = state.theta[v, j]
    if old <= TINY:
        return
    step = _random_scale(rng, noise / (state.total[v] + 1.0)) * rng.normal()
    if level == 0:
        shape = max(1.0 / math.sqrt(open_.sum()), EVEN)
        rate = open_.sum() * shape
    else:
        shape = state.kappa[level, j] * state.theta[places.parent[v], j] + EVEN
        rate = state.kappa[level, j] / state.factor[v, j]
    rates.theta[v] = old * math.exp(step)
    log = shape * step - rate * (rates.theta[v] - old)
    kappa = state.kappa[level + 1, j]
    _try(rng, places, tables, state, rates, level, (v, v + 1), j, kappa, log)


@njit(cache=True, error_model="numpy", _nrt=False)
def _move_concentration(rng, places, tables, state, rates, hyper, level, j):
    """Propose a new concentration of a column at the parts of a level's places."""
    begin, end, common = places.level_ptr[level], places.level_ptr[level + 1], state.common[level + 1]
    for v in range(begin, end):
        rates.theta[v] = state.theta[v, j]
    old = math.log(state.kappa[level + 1, j])
    new = old + _random_scale(rng, USUAL_LOG_SCALE) * rng.normal()
    apart, before = (new - math.log(common)) / hyper.cell_spread, (old - math.log(common)) / hyper.cell_spread
    log = 0.5 * (before * before - apart * apart)
    if abs(new) < MAX_LOG_CONCENTRATION:
        _try(rng, places, tables, state, rates, level, (begin, end), j, math.exp(new), log)


@njit(cache=True, error_model="numpy", _nrt=False)
def _try(rng, places, tables, state, rates, level, branch, j, kappa, log):
    """Apply a column's change to all places below, and accept or reject it."""
    first, (begin, end) = places.level_ptr[-2], branch
    low, high = _pass_on(rng, places, state, rates, level, begin, end, j, kappa)
    well = True
    for row in range(low, high):
        if well and state.total[first + row] > 0:
            well = _relabel(rng, tables, state, rates, row, j)
    taken = well and math.log(1.0 - rng.random()) < log + log_noise(tables, state, rates)
    settle_change(places, state, rates, taken)
    if taken:
        state.kappa[level + 1, j] = kappa
        for row in range(low, high):
            rates.cell[row, j] = rates.fresh[row]
        for _ in range(level, places.level_ptr.size - 2):
            for u in range(begin, end):
                state.theta[u, j] = rates.theta[u]
            begin, end = places.child_ptr[begin], places.child_ptr[end]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _free_from(tables):
    """Return the first level on which the totals of places are not all exact."""
    level = 0
    for r in range(tables.level.size):
        exact = tables.reach[r] == 0.0 and tables.bound[r] == 0 and tables.groups[r] == 1
        level = max(level, tables.level[r] + 1) if exact else level
    return level


@njit(cache=True, error_model="numpy")
def move_rates(rng, places, tables, moves, state, open_, hyper, learn):
    """Propose new totals, compositions and concentrations at all places, with counts that change along.

    Parameters
    ----------
    rng
        A NumPy generator.
    state
        Where the chain is, which is overwritten.
    open_
        `(n,)` 1 for columns that may be other than zero.
    hyper, learn
        Lognormal hyperprior, and whether concentrations are drawn.
    """
    if not moves.scale.max() > 0.0:
        return
    levels, (leaves, n), nodes = places.level_ptr.size - 1, state.x.shape, places.parent.size
    rates = Rates(
        np.empty(nodes),
        np.zeros(places.level_ptr[-2]),
        np.ones(nodes),
        np.empty((leaves, n)),
        np.empty((levels, leaves), np.int64),
        np.empty(places.level_ptr[-2]),
        np.empty(leaves),
        np.zeros(nodes, np.int64),
        np.empty(n),
        np.zeros(2, np.int64),
        np.empty((leaves * n, 2), np.int32),
        np.empty(leaves * n, np.int64),
        np.empty((state.gap.size, 2), np.int32),
        np.zeros(state.gap.size, np.bool_),
        np.zeros(state.gap.size),
    )
    find_places(places, rates.above)
    draw_rates_of_places(rng, places, state, rates)
    free, few = _free_from(tables), min(n, COLUMNS)
    for level in range(levels):
        noise = moves.scale[level]
        for v in range(
            places.level_ptr[level] if noise > 0.0 else 0, places.level_ptr[level + 1] if noise > 0.0 else 0
        ):
            if free == 0:
                _move_total(rng, places, tables, state, rates, level, v, noise)
            if level >= max(free, 1):
                begin, end = places.child_ptr[places.parent[v]], places.child_ptr[places.parent[v] + 1]
                other = begin + int(rng.random() * (end - begin))
                if other != v:
                    _exchange(rng, places, tables, state, rates, level, v, other, noise)
                    if level == levels - 1:
                        _inhabit(rng, places, tables, state, rates, v, other)
            for k in range(few if level < levels - 1 else 0):
                j = k if few == n else int(rng.random() * n)
                if open_[j] > 0.0:
                    _move_column(rng, places, tables, state, rates, open_, level, v, j, noise)
    for level in range(levels - 1 if learn else 0):
        for k in range(few if moves.scale[level + 1] > 0.0 else 0):
            j = k if few == n else int(rng.random() * n)
            if open_[j] > 0.0:
                _move_concentration(rng, places, tables, state, rates, hyper, level, j)
    draw_sizes_from(rng, state, rates)


EVERY, SELDOM = 3, 6
"""Sweeps between two draws of compositions, which many places inform, and of concentrations and factors, which take longer."""


@njit(cache=True, error_model="numpy")
def histogram_sweeps(rng, places, tables, moves, state, work, prior, sweeps, part, kept):
    """Run sweeps of the chain on histograms in place; return the number of directions left out.

    One call makes several draws: handing over all that a chain is made of takes as long as moving some places a few times.

    Parameters
    ----------
    rng
        A NumPy generator.
    prior
        `open_, alike, room, hyper, learn`, as `draw_prior` takes them.
    sweeps
        Number of the first one, by which the prior's numbers take turns; how many; how many to a draw.
    part
        `begin, end, whole`: the directions of a sweep that are taken, and whether all else of a sweep follows. A part of a sweep
        lets a large problem return to Python in time.
    kept
        What is written: `(k, leaves, n)` the first draws' tables: that of the last one is the state's.
        `(draws, p)` each draw's concentrations of totals and of cells, the root's apart, its mean rate of uninhabited places, and
        slopes of covariates.
    """
    (first, count, thin), levels, failed, drawn = sweeps, state.a.size, 0, 0
    (open_, alike, room, hyper, learn), (begin, end, whole), (tables_kept, learnt) = prior, part, kept
    for sweep in range(first, first + count):
        failed += column_sweep(rng, places, tables, moves, state, work, begin, end)
        if whole:
            draw_sizes(rng, places, state)
        if whole and sweep % EVERY == 1:
            move_rates(rng, places, tables, moves, state, open_, hyper, learn)
        if whole and sweep % EVERY == 0:
            draw_prior(rng, places, state, open_, alike, room, hyper, learn and sweep % SELDOM == 0)
        if (sweep + 1) % thin == 0:
            if drawn < len(tables_kept):
                copy_table(tables_kept[drawn], state.x)
            for level in range(1, levels):
                learnt[drawn, level - 1] = state.a[level]
                learnt[drawn, levels + level - 2] = state.common[level]
            learnt[drawn, 2 * levels - 2] = state.rates_law[0]
            for k in range(state.slope.size):
                learnt[drawn, 2 * levels - 1 + k] = state.slope[k]
            drawn += 1
    return failed
