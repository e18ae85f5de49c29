"""Independent exact draws under linear inequalities, by tilted rejection.

Counts `theta` have independent laws `f_i` about noisy values, on a box `low <= theta <= high`, and
must satisfy `A theta >= b`. For any `lambda >= 0`, with `t = A' lambda`,

    propose theta_i ~ f_i(x) exp(t_i x) on its interval, independently;
    accept if A theta >= b and an Exp(1) variate is at least lambda' (A theta - b):

the second step has probability exp(-lambda' (A theta - b)) <= 1, which undoes the tilt, so accepted
draws are exact and independent whatever `lambda` is. Their acceptance rate is at most
exp(F(lambda)) with

    F(lambda) = sum_i log M_i(t_i) - lambda' b,

convex, M_i the moment generating function of `f_i` on its interval; the rows take turns at one
Newton step each until it is least. Works for any law whose tilted form can be drawn: normal,
Laplace, discrete Gaussian, two-sided geometric.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.inequalities import (
    COARSE_NODES,
    COARSE_WEIGHTS,
    draw_laplace,
    draw_normal,
    laplace_moments,
    laplace_pieces,
    normal_moments,
)

Reals = NDArray[np.float64]

GAUSSIAN, LAPLACE, DISCRETE_GAUSSIAN, TWO_SIDED_GEOMETRIC = 0, 1, 2, 3
TABLE_DEPTH = 40.0
"""Tables of discrete laws end where the tilted mass is exp(-40) = 4e-18 of its largest value."""
GUIDES = 256
PROPOSALS_AT_ONCE = 8192
"""Most proposals made at a time."""
MIN_EXPECTED_DRAWS = 8.0
"""Expected accepted draws before an acceptance rate is compared with its limit."""


@njit(cache=True)
def _moments(kind, z, scale, tilt, low, high):
    """Return log mass, mean and variance of a tilted coordinate, whose law is treated as continuous.

    Only the choice of `lambda` rests on it, and any `lambda` gives exact draws.
    """
    wide = 0.5 if kind >= DISCRETE_GAUSSIAN else 0.0
    if kind in (GAUSSIAN, DISCRETE_GAUSSIAN):
        centre = z + tilt * scale * scale
        log, mean, variance = normal_moments(
            centre, scale, low - wide, high + wide, COARSE_NODES, COARSE_WEIGHTS
        )
        return log + tilt * (z + 0.5 * tilt * scale * scale), mean, variance
    return laplace_moments(z, scale, tilt, low - wide, high + wide)


@njit(cache=True)
def _slope(row, bound, tilts, change, problem):
    """Return the first two derivatives of the log acceptance bound by the multiplier of one row."""
    kind, z, scale, low, high = problem
    first, second = -bound, 0.0
    for i in range(len(z)):
        if row[i] != 0.0 and low[i] == high[i]:
            first += row[i] * low[i]
        elif row[i] != 0.0:
            _, mean, variance = _moments(kind[i], z[i], scale[i], tilts[i] + change * row[i], low[i], high[i])
            first += row[i] * mean
            second += row[i] * row[i] * variance
    return first, second


@njit(cache=True)
def _largest_change(row, tilts, problem):
    """Return the largest increase of one row's multiplier at which all tilted laws exist."""
    kind, _, scale, _, _ = problem
    most = math.inf
    for i in range(len(row)):
        if row[i] != 0.0 and kind[i] in (LAPLACE, TWO_SIDED_GEOMETRIC):
            limit = (0.98 if kind[i] == LAPLACE else 0.9) / scale[i]
            room = limit - tilts[i] if row[i] > 0 else limit + tilts[i]
            most = min(most, max(room, 0.0) / abs(row[i]))
    return most


@njit(cache=True)
def best_tilt(rows, bounds, problem):
    """Return multipliers (m,) near the minimum of the log acceptance bound, and the tilts `A' lambda` (n,).

    One safeguarded Newton search per row in turn; stops when every derivative is small beside the
    standard deviation of its row, which costs less than a hundredth of the acceptance rate.
    """
    m = len(bounds)
    multipliers, tilts = np.zeros(m), np.zeros(rows.shape[1])
    for _ in range(50):
        settled = True
        for k in range(m):
            low, high = -multipliers[k], _largest_change(rows[k], tilts, problem)
            change = 0.0
            for _ in range(25):
                first, second = _slope(rows[k], bounds[k], tilts, change, problem)
                at_edge = (change <= low and first >= 0) or (change >= high and first <= 0)
                if at_edge or abs(first) <= 0.02 * math.sqrt(second) or second <= 0:
                    break
                settled = False
                if first > 0:
                    high = change
                else:
                    low = change
                fresh = change - first / second
                if not low <= fresh <= high:
                    fresh = 0.5 * (low + high) if high < math.inf else fresh
                change = max(fresh, low)
            multipliers[k] += change
            for i in range(len(tilts)):
                tilts[i] += change * rows[k, i]
        if settled:
            break
    return multipliers, tilts


@njit(cache=True)
def tilted_log_mass(kind, x, z, scale):
    """Return the log mass of a discrete law at `x`, up to a constant."""
    if kind == DISCRETE_GAUSSIAN:
        return -0.5 * ((x - z) / scale) ** 2
    return -abs(x - z) / scale


@njit(cache=True)
def _tilted_cdf(kind, z, scale, tilt, low, high):
    """Return the first value of a tilted discrete law, cumulative sums of its masses, and a table that speeds up inversion."""
    centre = z + tilt * scale * scale if kind == DISCRETE_GAUSSIAN else z
    peak = min(max(np.round(centre), low), high)
    top = tilted_log_mass(kind, peak, z, scale) + tilt * peak
    first = last = peak
    while first > low and tilted_log_mass(kind, first - 1, z, scale) + tilt * (first - 1) > top - TABLE_DEPTH:
        first -= 1
    while last < high and tilted_log_mass(kind, last + 1, z, scale) + tilt * (last + 1) > top - TABLE_DEPTH:
        last += 1
    running = np.empty(int(last - first) + 1)
    total = 0.0
    for k in range(len(running)):
        total += math.exp(tilted_log_mass(kind, first + k, z, scale) + tilt * (first + k) - top)
        running[k] = total
    running /= total
    guides = np.empty(GUIDES, np.int64)
    k = 0
    for g in range(GUIDES):
        while running[k] <= g / GUIDES and k < len(running) - 1:
            k += 1
        guides[g] = k
    return first, running, guides


@njit(cache=True)
def _proposals(rng, kind, z, scale, tilt, low, high, out):
    """Fill `out` with independent draws of one tilted coordinate."""
    if low == high:
        out[:] = low
    elif kind == GAUSSIAN:
        centre = z + tilt * scale * scale
        a, b = (low - centre) / scale, (high - centre) / scale
        for k in range(len(out)):
            out[k] = min(max(centre + scale * draw_normal(rng, a, b), low), high)
    elif kind == LAPLACE:
        pieces = laplace_pieces(z, scale, tilt, low, high)
        for k in range(len(out)):
            out[k] = min(max(draw_laplace(rng, pieces), low), high)
    else:
        first, running, guides = _tilted_cdf(kind, z, scale, tilt, low, high)
        for k in range(len(out)):
            u = rng.random()
            j = guides[int(u * GUIDES)]
            while running[j] <= u:
                j += 1
            out[k] = first + j


@njit(cache=True)
def _accept(rng, rows, bounds, multipliers, block, out, done):
    """Append the accepted columns of `block` (n, size) to `out` (draws, n); return the new count."""
    n, size = block.shape
    for k in range(size):
        excess = 0.0
        inside = True
        for r in range(len(bounds)):
            value = -bounds[r]
            for i in range(n):
                value += rows[r, i] * block[i, k]
            if value < 0.0:
                inside = False
                break
            excess += multipliers[r] * value
        if inside and (excess == 0.0 or rng.standard_exponential() >= excess):
            for i in range(n):
                out[done, i] = block[i, k]
            done += 1
            if done == len(out):
                break
    return done, k + 1


@njit(cache=True)
def _enough(missing, done, proposed):
    """Return a number of proposals that most likely suffices at the observed acceptance rate."""
    rate = done / proposed if proposed > 0 else 1.0
    return int(min(1.02 * missing / max(rate, 1e-6) + 32, PROPOSALS_AT_ONCE))


@njit(cache=True)
def draw_inequalities(kind, z, scale, rows, bounds, low, high, draws, least, rng):
    """Draw points `(p, draws, n)` of p problems that have the same inequalities.

    Parameters
    ----------
    kind
        (n,) law of each coordinate: GAUSSIAN, LAPLACE, DISCRETE_GAUSSIAN or TWO_SIDED_GEOMETRIC.
    z, scale
        (p, n) noisy values; sd of normal laws, 1 / epsilon of the others.
    rows, bounds
        `rows @ theta >= bounds`; (m, n), (m,).
    low, high
        (p, n) boxes; equal entries fix a coordinate. Integers for discrete laws.
    draws
        Draws per problem.
    least
        Acceptance rate below which a problem is left out; checked once eight draws are expected at that rate.
    rng
        NumPy generator.

    Returns
    -------
    draws, acceptance
        Draws, and accepted / proposed of each problem (0 where it was left out).
    """
    p, n = z.shape
    out = np.empty((p, draws, n))
    acceptance = np.zeros(p)
    block = np.empty((n, PROPOSALS_AT_ONCE))
    for q in range(p):
        problem = (kind, z[q], scale[q], low[q], high[q])
        multipliers, tilts = best_tilt(rows, bounds, problem)
        done = proposed = 0
        while 0 <= done < draws:
            size = _enough(draws - done, done, proposed)
            for i in range(n):
                _proposals(
                    rng, kind[i], z[q, i], scale[q, i], tilts[i], low[q, i], high[q, i], block[i, :size]
                )
            done, used = _accept(rng, rows, bounds, multipliers, block[:, :size], out[q], done)
            proposed += used
            if least * proposed >= MIN_EXPECTED_DRAWS and done < least * proposed:
                done = -1
        acceptance[q] = draws / proposed if done == draws else 0.0
    return out, acceptance
