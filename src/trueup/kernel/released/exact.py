"""Exact posterior draws of true counts given a multinomial mode of noisy counts.

Parts have true counts N_s and noisy counts n_s = N_s + noise; a_s = max(n_s, 0); `k` is the mode of
Multinomial(m, a / sum a) and the only thing published (Wang & Reiter 2021, section 4).

**Events.** `k` is a mode iff there is a multiplier c with `k_s <= c a_s <= k_s + 1` for all s. The
smallest such c of a vector `a` is `max k_s / a_s`: the last part to *enter*. So the vectors split
by their enter event (s, a_s), and given the event the others lie in intervals, independently:
one term per event, all positive, nothing counted twice. Ties are broken as Finucan's algorithm
does (see `trueup.kernel.multinomial.apportion`) by moving equal multipliers apart in the order of the index,
upwards where trials are added (order 0), downwards where they are removed (order 1). A vector
without ties is an event of both orders and is kept in order 0; a tied one in the order of its phase.
Where a random order of the parts settled ties, of d parts that tie those e that have entered are a
random subset: the vector is an event of order 2, and counts with the probability 1 / C(d, e).

**Draws.** For any tilt t, with T the likelihood (times prior) of the total N = sum N_s,

    posterior(event, a, N)  ~  prod_s [prior(N_s) p(a_s | N_s) e^{t (N_s - k_s)}] . T(N) e^{-t (N - m)}.

Given the event and t the bracket is a product, its sum B(t) is a product of one-dimensional sums,
and the last factor is at most M(t) = max_N T(N) e^{-t (N - m)}. So: draw an event with probability
proportional to `min_t B(t) M(t)`, draw a and N part by part, accept with probability
`T(N) e^{-t (N - m)} / M(t)`. Draws are independent and exact, for any number of parts; the tilt
only decides how many are accepted.

**Summed totals.** Where the total is estimated from the parts' sum n* as well, a two-sided
geometric n and a symmetric log-concave law of n* give `m = n` clipped to `n* - K .. n* + K`, with
K the distance at which the slope of the log mass of n* reaches epsilon. Then T depends on n* as
well, and the tilt is put on n* instead of N.

**Two parts** have an exact posterior table, behind a mode or a draw. The likelihood is a product of three matrices,

    P(k | N_1, N_2)  =  T(N_1 + N_2) . (K_1 B K_2')(N_1, N_2),

with K_s the law of the noisy count a_s given N_s, and B(a_1, a_2) the probability that the release
is k: 0 or 1 for the mode (Wang & Reiter 2021, section 4), a binomial mass for the draw (Wang 2020,
Algorithm 2). Where the released total depends on n* = n_1 + n_2, B splits by how it does. Products of
matrices given by their logarithms are accurate however small the entries.
"""

# pyright: reportCallIssue=false
from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from trueup.errors import ConvergenceError
from trueup.kernel.compiled import njit
from trueup.kernel.multinomial import product_exceeds, products_equal
from trueup.kernel.released import Tables, Total, log_total, mass_between, noisy_mass
from trueup.kernel.released.draw import draw_true
from trueup.kernel.released.events import Events, interval, log_choose

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

_BLOCK = 2**12


def draw_near_mode(
    k: Integers, tables: Tables, total: Total, events: Events, draws: int, rng: np.random.Generator
) -> tuple[Integers, float]:
    """Draw independent true counts (draws, n); also return the share of proposals accepted."""
    running = np.cumsum(np.exp(events.log_mass - events.log_mass.max()))
    out = np.empty((draws, k.size), np.int64)
    done = tries = 0
    while done < draws:
        done, tried = _draw(k, tables, total, events[:4], running, rng, out, done, _BLOCK)
        tries += tried
        if tries > 1e6 * (done + 1):
            raise ConvergenceError(
                "these released counts are too unlikely under the laws and the prior to draw their posterior",
                remedy="give the method that released them, the laws of its noise, and a prior that allows such counts",
            )
    return out, done / tries


@njit(cache=True)
def _draw(k, tables, total, events, running, rng, out, done, tries):
    """Make up to `tries` proposals; return the draws accepted in all, and the proposals made."""
    part, count, order, tilt = events
    noisy = np.empty(k.size, np.int64)
    m = k.sum()
    for tried in range(tries):
        if done == out.shape[0]:
            return done, tried
        e = np.searchsorted(running, rng.random() * running[-1], side="right")
        t = tilt[e]
        _draw_noisy(k, tables, part[e], count[e], order[e], t, rng, noisy)
        if part[e] >= 0:
            share = share_of_order(noisy, k, order[e])
            if share < 1.0 and rng.random() >= share:
                continue
        true_sum, noisy_sum = draw_true(tables, t, noisy, rng, out[done], total.radius >= 0)
        log = log_total(total, true_sum, noisy_sum, m)
        moved = noisy_sum if total.radius >= 0 else true_sum
        if np.log(rng.random()) < log - tables.tilt[t] * (moved - m) - total.ceiling[t]:
            done += 1
    return done, tries


@njit(cache=True)
def _draw_noisy(k, tables, part, count, order, t, rng, noisy):
    """Draw all noisy counts given the event by which the mode was released."""
    for r in range(k.size):
        if part < 0:
            noisy[r] = 0
            continue
        low, high = interval(k, part, count, order, r)
        noisy[r] = low
        if low < high:
            noisy[r] = _draw_between(tables, t, tables.kind[r], low, high, rng)


@njit(cache=True)
def _draw_between(tables, t, kind, low, high, rng):
    """Draw a noisy count from `low..high` by its tilted masses."""
    left, step, factor, drawn = (
        rng.random() * mass_between(tables, t, kind, low, high),
        tables.step[t],
        1.0,
        low,
    )
    for a in range(low, high + 1):
        share = noisy_mass(tables, t, kind, a) * factor
        drawn = a if share > 0 else drawn
        left -= share
        if left < 0:
            break
        factor *= step
    return drawn


@njit(cache=True)
def share_of_order(noisy, k, order):
    """Return the probability of releasing k given noisy counts, or 0 if another order of ties applies."""
    enter, leave = -1, -1
    total = trials = 0
    for r in range(k.size):
        total += noisy[r]
        trials += k[r]
        if k[r] > 0 and (enter < 0 or product_exceeds(k[r], noisy[enter], k[enter], noisy[r])):
            enter = r
        if noisy[r] > 0 and (leave < 0 or product_exceeds(k[leave] + 1, noisy[r], k[r] + 1, noisy[leave])):
            leave = r
    if not products_equal(k[enter], noisy[leave], k[leave] + 1, noisy[enter]):
        return 0.0 if order == 1 else 1.0
    if order == 2:
        return _share_of_ties(noisy, k, enter)
    adds = product_exceeds(2 * total, k[enter], 2 * trials + k.size, noisy[enter])
    return 1.0 if order == (0 if adds else 1) else 0.0


@njit(cache=True)
def _share_of_ties(noisy, k, enter):
    """Return the probability that those parts enter that did, if ties are resolved at random."""
    inside = tied = 0
    for r in range(k.size):
        entered = k[r] > 0 and products_equal(k[r], noisy[enter], k[enter], noisy[r])
        inside += entered
        tied += entered or products_equal(k[r] + 1, noisy[enter], k[enter], noisy[r])
    return math.exp(-log_choose(tied, inside))


_ONE_THREAD = 2**18


def mode_table(first: Integers, second: Integers, k: Integers) -> NDArray[np.bool_]:
    """Return a mask (i, j) of weights `first[i]`, `second[j]` for which Finucan's algorithm gives `k`.

    With S = 2 the start is `c = m + 1`: the floors add up to m, or to m + 1 where both shares are
    whole, and then the first part gives one back. Exact in integers below 2^31.
    """
    a, b = first[:, None], second[None, :]
    whole = (k.sum() + 1) * a
    total = np.maximum(a + b, 1)
    mode = np.where(whole % total == 0, whole // total - 1, whole // total)
    mode = np.where(a == 0, 0, np.where(b == 0, k.sum(), mode))
    return (mode == k[0]) & (a + b > 0)


def draw_table(first: Integers, second: Integers, k: Integers) -> Reals:
    """Return the binomial mass (i, j) of `k` for weights `first[i]`, `second[j]`."""
    a, b = first[:, None].astype(float), second[None, :].astype(float)
    total = np.maximum(a + b, 1.0)
    log = gammaln(k.sum() + 1) - gammaln(k + 1).sum() + xlogy(k[0], a / total) + xlogy(k[1], b / total)
    return np.where(a + b > 0, np.exp(log), 0.0)


def posterior_two(
    windows: tuple[Integers, Integers],
    noisy: tuple[Integers, Integers],
    given: tuple[Reals, Reals],
    released: Reals,
    total: Total,
    trials: int,
) -> Reals:
    """Return the posterior masses of two true counts under flat priors.

    Parameters
    ----------
    windows
        True counts of either part, in order.
    noisy
        Noisy counts n (negative ones included) of either part, in order.
    given
        `(windows, noisy)` mass of each noisy count given each true one, of either part.
    released
        `(noisy, noisy)` probability of what was released.
    total
        Likelihood of the true total given the released one.
    trials
        The released total m (counts).

    Returns
    -------
    ndarray, shape (len(windows[0]), len(windows[1]))

    Notes
    -----
    Wang & Reiter (2021), equation (11).
    """
    sums = windows[0][:, None] + windows[1][None, :]
    likelihood = np.exp(total.log)[:, np.clip(sums - total.low, 0, total.log.shape[1] - 1)]
    likelihood[:, (sums < total.low) | (sums >= total.low + total.log.shape[1])] = 0.0
    if total.radius < 0:
        posterior = _between(given, released) * likelihood[0]
        return posterior / posterior.sum()
    row = _likelihood_rows(noisy[0][:, None] + noisy[1][None, :] - trials, total.radius)
    posterior = np.sum(
        [_between(given, np.where(row == r, released, 0.0)) * likelihood[r] for r in range(4)], axis=0
    )
    return posterior / posterior.sum()


def _between(given: tuple[Reals, Reals], released: Reals) -> Reals:
    """Return the likelihood of pairs of true counts: a table of releases, summed over both noisy counts."""
    return small_product(small_product(given[0], released), np.ascontiguousarray(given[1].T))


def small_product(a: Reals, b: Reals) -> Reals:
    """Return the product of two small matrices, computed a few rows at a time.

    BLAS wakes its threads for more than about 2^18 multiplications; where cores are busy, waiting
    for them takes a hundred times as long as a small product.
    """
    rows = _ONE_THREAD // b.size
    if rows == 0:
        return a @ b
    return np.concatenate([a[k : k + rows] @ b for k in range(0, len(a), rows)])


def given_true(true: Integers, noisy: Integers, pmf: Reals) -> Reals:
    """Return the mass of each noisy count given each true one."""
    distance = np.abs(true[:, None] - noisy[None, :])
    return np.where(distance < pmf.size, pmf[np.minimum(distance, pmf.size - 1)], 0.0)


def _likelihood_rows(excess: Integers, radius: int) -> Integers:
    """Return the row of the likelihood for each `n* - m`, or -1 where m cannot have been released."""
    inside = np.where(np.abs(excess) > radius, -1, 0)
    if radius == 0:
        return np.where(excess == 0, 3, -1)
    return np.where(excess == -radius, 1, np.where(excess == radius, 2, inside))


def log_product(a: Reals, b: Reals) -> Reals:
    """Return `log(exp(a) @ exp(b))`, scaled by the largest terms.

    Parameters
    ----------
    a, b
        `(n, k)` and `(k, m)` logarithms; -inf for zero.

    Examples
    --------
    >>> log_product(np.array([[-5000.0, -5001.0]]), np.zeros((2, 1))).round(4)
    array([[-4999.6867]])
    """
    return _log_product(np.ascontiguousarray(a, float), np.ascontiguousarray(b.T, float))


@njit(cache=True)
def _log_product(a, b):
    out = np.empty((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            top = -math.inf
            for k in range(a.shape[1]):
                top = max(top, a[i, k] + b[j, k])
            total = 0.0
            if top > -math.inf:
                for k in range(a.shape[1]):
                    total += math.exp(a[i, k] + b[j, k] - top)
            out[i, j] = top + math.log(total) if total > 0 else -math.inf
    return out
