"""Tables of a Chinese restaurant: auxiliary counts that make concentrations and shares conjugate.

`Gamma(n + b) / Gamma(b)` is a sum over numbers m of tables of `b^m` times what does not depend on b (Antoniak 1974).
"""

from __future__ import annotations

import math

from trueup.kernel.compiled import njit

MIN_SEATED_GUESTS, SEATED_PER_CONCENTRATION = 12, 25.0
"""Guests of a restaurant who are seated one by one: so many, or this times the concentration, until few take new tables."""
MIN_NORMAL_CONCENTRATION = 1_000.0
"""Concentration from which on tables, as many at least where guests are, are drawn by a normal law."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _mean(guests, alpha):
    """Return the mean number of tables: alpha times a difference of digammas, by the Euler-Maclaurin formula."""
    far = alpha + guests
    return alpha * (math.log1p(guests / alpha) + 0.5 / alpha - 0.5 / far)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _by_normal_law(rng, guests, alpha):
    """Draw the number of tables as a rounded normal, within a hundredth of the law for so many independent events.

    What is drawn given their number, m, has a gamma law of shape m, whose deviation is as wide as theirs.
    """
    mean, far = _mean(guests, alpha), alpha + guests
    squares = alpha * alpha * (1.0 / alpha - 1.0 / far + 0.5 / (alpha * alpha) - 0.5 / (far * far))
    drawn = mean + math.sqrt(max(mean - squares, 0.0)) * rng.normal()
    return min(max(math.floor(drawn + 0.5), 1), guests)


@njit(cache=True, error_model="numpy")
def occupied(rng, guests, alpha):
    """Draw how many tables `guests` occupy: guest i + 1 takes a new one with probability alpha / (alpha + i).

    Beyond the first few, new tables come as points of rate `log(1 + alpha / i)` on [i, i + 1), at most one each, thinned
    from the rate alpha / (s - 1), so that the time is that of the tables, not of the guests.
    """
    if alpha > MIN_NORMAL_CONCENTRATION and guests > MIN_NORMAL_CONCENTRATION:
        return _by_normal_law(rng, guests, alpha)
    count, i = min(guests, 1), 1
    few = min(float(guests), max(MIN_SEATED_GUESTS, SEATED_PER_CONCENTRATION * alpha))
    while i < few:
        if rng.random() * (alpha + i) < alpha:
            count += 1
        i += 1
    s = float(i)
    while i < guests:
        s = 1.0 + (s - 1.0) * math.exp(min(-math.log(1.0 - rng.random()) / alpha, 700.0))
        if not s < guests:
            return count
        k = math.floor(s)
        if rng.random() * alpha < math.log1p(alpha / k) * (s - 1.0):
            count += 1
            s = k + 1.0
    return count
