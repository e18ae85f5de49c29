"""Slow, obvious twins of the laws of noise and of their sampler: mpmath at 100 digits, one bit at a time.

Everything here follows from the masses as the definitions state them, summed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mpmath as mp

mp.mp.dps = 100

Mass = Callable[[int], mp.mpf]
Cdf = Callable[[int], mp.mpf]


def number(value) -> mp.mpf:
    """Convert an exact rational."""
    return mp.mpf(value.numerator) / value.denominator


def summed(mass: Mass, low: int, high: int) -> Cdf:
    """Return the cdf of a law on `low .. high` with that mass, up to a factor."""
    masses = [mass(k) for k in range(low, high + 1)]
    whole, total, known = mp.fsum(masses), mp.mpf(0), {}
    for k, m in zip(range(low, high), masses):
        total += m
        known[k] = total / whole
    return lambda k: mp.mpf(0) if k < low else mp.mpf(1) if k >= high else known[k]


def mass_of(law) -> Mass:
    """Return the unnormalised mass as the law's definition states it."""
    if law.name == "discrete-gaussian":
        return lambda k: mp.exp(-(mp.mpf(k) ** 2) / (2 * number(law.sigma2)))
    return lambda k: mp.exp(-number(law.epsilon) * abs(k))


def cdf_of(law) -> Cdf:
    """Return the cdf of a discrete law; masses below 1e-90 of the largest are left out."""
    mass = mass_of(law)
    if law.name == "truncated-geometric":
        return summed(mass, -law.bound, law.bound)
    furthest = vanishing(mass)
    return summed(mass, -furthest, furthest)


def vanishing(mass: Mass) -> int:
    """Return a `k` from which on the mass is below 1e-90."""
    k = 1
    while mass(k) > mp.mpf(10) ** -90:
        k = k + max(1, k // 4)
    return k


def first_digit(epsilon, base: int) -> Cdf:
    """Return the cdf of `Y = floor(X / base)`, where X has the discrete Laplace law."""
    # X = base y + l with 0 <= l < base, and |X| = base |y| - l where y < 0.
    e = number(epsilon)
    up = mp.fsum(mp.exp(-e * i) for i in range(base))
    down = mp.fsum(mp.exp(e * i) for i in range(base))
    mass = lambda y: mp.exp(-e * base * abs(y)) * (up if y >= 0 else down)  # noqa: E731
    furthest = vanishing(mass)
    return summed(mass, -furthest, furthest)


def low_digit(rate, base: int) -> Cdf:
    """Return the cdf of a digit: mass proportional to `exp(-rate l)` on `0 .. base - 1`."""
    return summed(lambda digit: mp.exp(-number(rate) * digit), 0, base - 1)


def decided_value(cdf: Cdf, low: mp.mpf, width: mp.mpf) -> int | None:
    """Return `X = min {k : F(k) > U}` if it is the same for all U in `[low, low + width)`, else None."""
    value = first_above(cdf, low)
    return value if cdf(value) >= low + width else None


def first_above(cdf: Cdf, u: mp.mpf) -> int:
    """Return `min {k : F(k) > u}`."""
    low, high = -1, 0
    while cdf(high) <= u:
        high = 2 * high + 1
    while cdf(low) > u:
        low *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cdf(middle) > u else (middle, high)
    return high


def invert(cdf: Cdf, bits: Iterator[int]) -> int:
    """Draw `X = min {k : F(k) > U}` exactly, one random bit at a time."""
    low, width = mp.mpf(0), mp.mpf(1)
    while (value := decided_value(cdf, low, width)) is None:
        width /= 2
        low += next(bits) * width
    return value
