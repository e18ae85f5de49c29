"""Draws of continuous counts under linear inequalities.

Here: Normal and Laplace laws on an interval: moments without cancellation, exact draws.

The textbook mean `z + sd (phi(a) - phi(b)) / (Phi(b) - Phi(a))` loses every digit once the interval
is eight standard deviations away from `z`. Here everything is measured from the *anchor*, the point
of the interval nearest to `z`, where the density is largest. Integrands are positive and scaled to 1
there, so nothing cancels and nothing underflows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trueup.kernel.compiled import njit

INTEGRATED_NATS = 40.0
"""Integrals stop where the density is exp(-40) of its largest value."""

COARSE_NODES, COARSE_WEIGHTS = np.polynomial.legendre.leggauss(24)


@njit(cache=True)
def _half_line(a, b, nodes, weights):
    """Return log mass, mean and variance about `max(a, 0)` of `exp(-x^2/2)` on `a..b`, with `b > 0`.

    Gauss-Legendre on the part that matters, at most 18 wide: exact to rounding with 64 nodes.
    """
    anchor = max(a, 0.0)
    low = max(a, -math.sqrt(2 * INTEGRATED_NATS))
    high = min(b, math.sqrt(anchor * anchor + 2 * INTEGRATED_NATS))
    half, centre = 0.5 * (high - low), 0.5 * (high + low) - anchor
    total = first = second = 0.0
    for k in range(len(nodes)):
        x = centre + half * nodes[k]
        mass = weights[k] * math.exp(-x * (anchor + 0.5 * x))
        total += mass
        first += mass * x
        second += mass * x * x
    first /= total
    return math.log(half * total) - 0.5 * anchor * anchor, first, second / total - first * first


@njit(cache=True)
def normal_moments(z, sd, low, high, nodes, weights):
    """Return log mass, mean and variance of `exp(-(x - z)^2 / (2 sd^2))` on `low..high`."""
    a, b = (low - z) / sd, (high - z) / sd
    if b > 0:
        log_mass, first, variance = _half_line(a, b, nodes, weights)
        mean = (low if a > 0 else z) + sd * first
    else:
        log_mass, first, variance = _half_line(-b, -a, nodes, weights)
        mean = high - sd * first
    return log_mass + math.log(sd), mean, sd * sd * variance


@njit(cache=True)
def _segment(rate, width):
    """Return mass, mean and variance of `exp(-rate x)` on `0..width` (rate > 0 if the width is infinite)."""
    u = rate * width
    if abs(u) < 1e-3:  # series to second order in u about the uniform law
        return width * (1 - u / 2 + u * u / 6), width * (0.5 - u / 12), width * width / 12
    if u < 0:
        mass, mean, variance = _segment(-rate, width)
        return (mass * math.exp(-u) if u > -700 else math.inf), width - mean, variance
    far = math.exp(-u) if u < 700 else 0.0
    tail = width * far / (1 - far) if far > 0 else 0.0
    variance = 1 / rate**2 - (width * tail / (1 - far) if far > 0 else 0.0)
    return (1 - far) / rate, 1 / rate - tail, max(variance, 0.0)


@njit(cache=True)
def laplace_moments(z, scale, tilt, low, high):
    """Return log mass, mean and variance of `exp(-|x - z| / scale + tilt x)` on `low..high`.

    The tilt must be smaller than `1 / scale` in absolute value on an unbounded side.
    """
    anchor = min(max(z, low), high)
    below_mass, below, below_var = (
        _segment(1 / scale + tilt, anchor - low) if anchor > low else (0.0, 0.0, 0.0)
    )
    above_mass, above, above_var = (
        _segment(1 / scale - tilt, high - anchor) if high > anchor else (0.0, 0.0, 0.0)
    )
    total = below_mass + above_mass
    p = above_mass / total
    shift = p * above - (1 - p) * below
    variance = p * (above_var + above**2) + (1 - p) * (below_var + below**2) - shift * shift
    return math.log(total) - abs(anchor - z) / scale + tilt * anchor, anchor + shift, max(variance, 0.0)


@njit(cache=True)
def draw_normal(rng, a, b):
    """Draw a standard normal variable on `a..b` by rejection (Robert 1995)."""
    if b <= 0.0:
        return -draw_normal(rng, -b, -a)
    if a <= 0.0 or (a < 0.4 and b - a > 1.0):
        if b - a > 1.25:
            while True:
                x = rng.standard_normal()
                if a <= x <= b:
                    return x
        while True:
            x = a + (b - a) * rng.random()
            if rng.standard_exponential() >= 0.5 * x * x:
                return x
    if (b - a) * a < 1.0:
        while True:
            x = a + (b - a) * rng.random()
            if rng.standard_exponential() >= 0.5 * (x * x - a * a):
                return x
    rate = 0.5 * (a + math.sqrt(a * a + 4.0))
    while True:
        x = a + rng.standard_exponential() / rate
        if x <= b and 2.0 * rng.standard_exponential() >= (x - rate) ** 2:
            return x


class Pieces(NamedTuple):
    """A tilted Laplace law on an interval, as two exponential pieces that meet at the anchor.

    Each piece is `(rate, width, expm1(-rate width))`; `below` is the probability of the lower one.
    """

    anchor: float
    below: float
    down: tuple[float, float, float]
    up: tuple[float, float, float]


@njit(cache=True)
def _piece(rate, width):
    if width == 0.0:
        return 0.0, (rate, width, 0.0)
    shrink = -1.0 if width == math.inf else math.expm1(-rate * width)
    return _segment(rate, width)[0], (rate, width, shrink)


@njit(cache=True)
def laplace_pieces(z, scale, tilt, low, high):
    """Return the parameters that `draw_laplace` needs for `exp(-|x - z| / scale + tilt x)` on `low..high`."""
    anchor = min(max(z, low), high)
    below, down = _piece(1 / scale + tilt, anchor - low)
    above, up = _piece(1 / scale - tilt, high - anchor)
    return Pieces(anchor, below / (below + above), down, up)


@njit(cache=True)
def draw_laplace(rng, pieces):
    """Draw from a tilted Laplace law on an interval by inversion, exactly."""
    lower = rng.random() < pieces.below
    rate, width, shrink = pieces.down if lower else pieces.up
    u = rng.random()
    step = u * width if abs(shrink) < 1e-12 else -math.log1p(u * shrink) / rate
    return pieces.anchor - step if lower else pieces.anchor + step
