"""Messages on a tree of counts, on grids of some hundred points, at a cost that depends on neither noise nor counts.

Here: sums of two counts whose densities are known at the points of grids.

A density is a function on the whole numbers, given by its logs at increasing points `x_k`; between these it is the exponential
of a parabola. Sums over whole numbers are worked out at points: each counts for the sum of its hat function,

    weight_k = 1 + (x_k - x_(k-1) - 1) / 2 + (x_(k+1) - x_k - 1) / 2.

Where points are neighbours the weight is 1, and all of this is exact. The density of a sum at `x` is the sum, over `u`, of the
product of one part's density at `u` and of the other's at `x - u`. Its points are those of the one, and `x` less those of the
other, so that whatever is narrow in either is seen.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit

NEGLIGIBLE_NATS = 40.0
"""Nats below the largest term at which a term is left out."""
ALIKE = 2.5
"""Ratio of two neighbouring gaps up to which the log is a parabola across both."""
MOST_BENT = 5.0
"""Nats by which such a parabola may leave a chord: beside a cliff, at the end of what siblings allow, it would shoot over it."""
STEEPEST = 40.0
"""Slope (nats a count) of a log density beside a point that it excludes."""
FADED = 1e-12
"""Mass of a point below which it says nothing of slopes."""


@njit(cache=True, error_model="numpy")
def log_spacings(x, out):
    """Write the logs of the integration weights of points `x` to `out`."""
    last = len(x) - 1
    for k in range(last + 1):
        weight = 1.0
        if k > 0:
            weight += 0.5 * (x[k] - x[k - 1] - 1)
        if k < last:
            weight += 0.5 * (x[k + 1] - x[k] - 1)
        out[k] = math.log(weight)


@njit(cache=True, error_model="numpy")
def _quadratic(xo, c):
    """Return True if the gaps on both sides of a grid point have similar widths."""
    if c == 0 or c == len(xo) - 1:
        return False
    left, right = float(xo[c] - xo[c - 1]), float(xo[c + 1] - xo[c])
    return left <= ALIKE * right and right <= ALIKE * left


@njit(cache=True, error_model="numpy")
def parabolas(xo, log):
    """Return `(2 n, 3)` coefficients of quadratic interpolations of a log density, on each half of every grid interval."""
    n = len(xo)
    out = np.zeros((2 * n, 3))
    for h in range(2 * n):
        c = (h + 1) // 2
        if c == n:
            continue
        middle = out[h, 0] = log[c]
        other = c - 1 if h % 2 == 1 else min(c + 1, n - 1)
        if other == c or middle == -np.inf:
            continue
        if log[other] == -np.inf:  # a bound, or the end of what is known: nothing lies between
            out[h, 1] = -STEEPEST if other > c else STEEPEST
        elif _quadratic(xo, c) and log[c - 1] > -np.inf and log[c + 1] > -np.inf:
            left, right = float(xo[c] - xo[c - 1]), float(xo[c + 1] - xo[c])
            down, up = (middle - log[c - 1]) / left, (log[c + 1] - middle) / right
            bend = (up - down) / (left + right)
            if abs(bend) * max(left, right) ** 2 > 4.0 * MOST_BENT:
                out[h, 1] = up if other > c else down
            else:
                out[h, 1], out[h, 2] = down + bend * left, bend
        else:
            out[h, 1] = (log[other] - middle) / (xo[other] - xo[c])
    return out


@njit(cache=True, error_model="numpy")
def _interpolated_log(x, curves, k, at):
    """Return a log density at a whole number between points `k` and `k + 1`."""
    away, gap = at - x[k], x[min(k + 1, len(x) - 1)] - x[k]
    h = 2 * k
    if 2 * away > gap:
        h, away = h + 1, away - gap
    return curves[h, 0] + away * (curves[h, 1] + away * curves[h, 2])


@njit(cache=True, error_model="numpy")
def convolve_at(xf, lf, cf, xg, lg, cg, xo, out):
    """Write the log of the convolution of two densities at points `xo` to `out`.

    Parameters
    ----------
    xf, lf, cf, xg, lg, cg
        Points, logs and `parabolas` of the densities.
    """
    if _are_neighbours(xf) and _are_neighbours(xg) and _are_neighbours(xo):
        _convolve_whole(xf, lf, xg, lg, xo, out)
        return
    spots, logs = np.empty(len(xf) + len(xg), np.int64), np.empty(len(xf) + len(xg))
    for o in range(len(xo)):
        size = _terms(xf, lf, cf, xg, lg, cg, xo[o], spots, logs)
        out[o] = _log_sum(spots, logs, size)


@njit(cache=True, error_model="numpy")
def _are_neighbours(x):
    """Return True if points are neighbouring whole numbers."""
    return x[-1] - x[0] == len(x) - 1


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _convolve_whole(xf, lf, xg, lg, xo, out):
    """Write the log convolution of two densities to `out`, if every whole number is a point of both.

    Both densities are multiplied by the same exponential, which makes them flat: their logs may span hundreds of nats.
    """
    slope = _chord(lf) + _chord(lg)
    f, top_f = _flattened(lf, slope)
    g, top_g = _flattened(lg[::-1], -slope)  # backwards, so that both are read forwards
    last = len(g) - 1
    for o in range(len(xo)):
        at = xo[o] - xf[0] - xg[0]  # i + j = at
        low, high = max(0, at - last), min(len(f) - 1, at)
        total = 0.0
        for i in range(low, high + 1):
            total += f[i] * g[last - at + i]
        out[o] = math.log(total) + top_f + top_g + slope * (at - last) if total > 0.0 else -np.inf


@njit(cache=True, error_model="numpy")
def _chord(log):
    """Return half the mean slope of a log density between its first and last finite values."""
    first, last = 0, len(log) - 1
    while first < last and log[first] == -np.inf:
        first += 1
    while last > first and log[last] == -np.inf:
        last -= 1
    return 0.5 * (log[last] - log[first]) / (last - first) if last > first else 0.0


@njit(cache=True, error_model="numpy")
def _flattened(log, slope):
    """Return `exp(log - slope k)` at positions `k` relative to its largest value, and the log of that value."""
    out, top = np.empty(len(log)), -np.inf
    for k in range(len(log)):
        out[k] = log[k] - slope * k
        top = max(top, out[k])
    for k in range(len(log)):
        out[k] = math.exp(out[k] - top) if out[k] > -np.inf else 0.0
    return out, top


@njit(cache=True, error_model="numpy")
def _terms(xf, lf, cf, xg, lg, cg, x, spots, logs):
    """Write the splits of a count into two parts to `spots`, and their log densities to `logs`."""
    low, high = max(xf[0], x - xg[-1]), min(xf[-1], x - xg[0])
    i, j, size = np.searchsorted(xf, low), np.searchsorted(xg, x - low, side="right") - 1, 0
    while True:
        first = xf[i] if i < len(xf) else high + 1
        second = x - xg[j] if j >= 0 else high + 1
        u = min(first, second)
        if u > high:
            return size
        if first == second:
            value = lf[i] + lg[j]
        elif first < second:
            value = lf[i]
            if value > -np.inf:
                value += _interpolated_log(xg, cg, j, x - u)
        else:
            value = lg[j]
            if value > -np.inf:
                value += _interpolated_log(xf, cf, i - 1, u)
        spots[size], logs[size] = u, value
        size += 1
        if first == u:
            i += 1
        if second == u:
            j -= 1


@njit(cache=True, error_model="numpy")
def _log_sum(spots, logs, size):
    """Return the log of a function's sum over whole numbers, given its logs at some of them."""
    top = -np.inf
    for k in range(size):
        top = max(top, logs[k])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(size):
        if logs[k] > top - NEGLIGIBLE_NATS:
            weight = 1.0
            if k > 0:
                weight += 0.5 * (spots[k] - spots[k - 1] - 1)
            if k < size - 1:
                weight += 0.5 * (spots[k + 1] - spots[k] - 1)
            total += weight * math.exp(logs[k] - top)
    return top + math.log(total)


@njit(cache=True, error_model="numpy")
def reflected(x, log):
    """Return points and logs of the density of minus the count."""
    return -x[::-1], log[::-1].copy()


@njit(cache=True, error_model="numpy")
def slope_and_scale(x, log, p):
    """Return slope and standard deviation of the parabola that fits log masses best, with the distribution `p` as weights.

    That is the slope `b` (nats a count) and the standard deviation `(-2 c)^(-1/2)` of the parabola `a + b x + c x^2` that fits
    `log` best, weighed by `p`; infinite where `c` is not below 0.
    """
    moments, sides, mean = np.zeros(5), np.zeros(3), 0.0
    for k in range(len(x)):
        mean += p[k] * (x[k] - x[0])
    for k in range(len(x)):
        if p[k] > FADED and log[k] > -np.inf:
            power, away = p[k], x[k] - x[0] - mean
            for i in range(5):
                moments[i] += power
                if i < 3:
                    sides[i] += power * log[k]
                power *= away
    # About the mean, scaled to a standard deviation of 1.
    m0, sd = moments[0], math.sqrt(moments[2] / moments[0])
    if not sd > 0.0:
        return 0.0, np.inf
    m1, m2, m3, m4 = moments[1] / sd, moments[2] / sd**2, moments[3] / sd**3, moments[4] / sd**4
    r0, r1, r2 = sides[0], sides[1] / sd, sides[2] / sd**2
    d11, d12, d22 = m2 - m1 * m1 / m0, m3 - m1 * m2 / m0, m4 - m2 * m2 / m0
    e1, e2 = r1 - m1 * r0 / m0, r2 - m2 * r0 / m0
    det = d11 * d22 - d12 * d12
    curve = (e2 * d11 - e1 * d12) / det if det > 1e-9 * d11 * d22 else 0.0
    slope = (e1 - d12 * curve) / d11
    scale = sd / math.sqrt(-2.0 * curve) if curve < 0.0 else np.inf
    return slope / sd, scale
