"""Epsilon at a delta of composed noise, from the distribution of its privacy loss, rounded up throughout.

Let L be the loss of all steps together. What is composed is (epsilon, delta)-DP exactly where

    delta >= E[(1 - exp(epsilon - L))+]                                                                   (1)

(Sommer, Meiser and Mohammadi, 2019; Zhu, Dong and Wang, 2022, for steps of which each is bounded by one pair of
distributions). L is a sum of independent losses, whose distribution is a convolution.

**Few losses.** The convolution is summed as it is, in numbers that are not negative: k of them are off by k units in the
last place at most, and are raised by that much.

**Many losses** go onto a grid: `trueup.privacy.loss_grid`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import fsum, inf, nextafter

import numpy as np

from trueup.noise.law import Reals
from trueup.noise.losses import ROUNDING
from trueup.privacy.loss_grid import Composed, LossMasses, on_grid, power, rounded_up

MAX_DIRECT_LOSSES, SHORT = 1 << 20, 1 << 12
"""Most losses of a convolution that is summed as it is: of all steps, and of those of one kind."""
LEAST_DELTA = 1e-60
"""Smallest delta, less what counts as infinite, that is looked at: probabilities of it are doubles."""
CLOSE = 1e-9
"""Relative accuracy to which epsilon is looked for."""


def composed_epsilon(composed: Composed, delta: Fraction) -> float:
    """Bound epsilon from above such that composed steps are (epsilon, delta)-DP; return infinity if none is found.

    Parameters
    ----------
    composed
        Losses of the steps, and how many there are of each; steps are chosen before any of them is seen.
    delta
        Above zero, below one.

    Returns
    -------
    float
        Never below the true epsilon.

    Examples
    --------
    >>> from trueup.noise.losses import pure_losses
    >>> print(f"{composed_epsilon([(pure_losses(Fraction(1, 10)), 100)], Fraction(1, 10**6)):.4f}")
    4.7746
    """
    steps = [(losses, number) for losses, number in composed if number]
    left = nextafter(float(delta), 0.0) - rounded_up(sum(number * losses.beyond for losses, number in steps))
    if left < LEAST_DELTA:
        return inf
    if not steps:
        return 0.0
    most = rounded_up(fsum(number * losses.most for losses, number in steps))
    masses = _summed(steps) if _few(steps) else on_grid(steps, left)
    found = min(most, _least_epsilon(masses, left, most)) if masses is not None else most
    return max(0.0, found + _shift(steps))


def _shift(steps: Composed) -> float:
    """Return by how much rounded losses may be too small."""
    return rounded_up(8 * ROUNDING * sum(n * max(abs(losses.least), abs(losses.most)) for losses, n in steps))


def _least_epsilon(masses: LossMasses, delta: float, most: float) -> float:
    """Return the least epsilon whose delta is small enough, by bisection; the returned value was checked."""
    if masses.delta(0.0) <= delta:
        return 0.0
    low, high = 0.0, most
    if masses.delta(high) > delta:
        return inf
    while high - low > CLOSE * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if masses.delta(middle) <= delta else (middle, high)
    return high


# --- few losses -------------------------------------------------------------------------------


def _few(steps: Composed) -> bool:
    sizes = [number * (len(losses.log_mass) - 1) + 1 for losses, number in steps]
    together = reduce(lambda all_of, one: min(all_of * one, MAX_DIRECT_LOSSES + 1), sizes, 1)
    return max(sizes) <= SHORT and together <= MAX_DIRECT_LOSSES


def _summed(steps: Composed) -> LossMasses:
    loss, p = np.zeros(1), np.ones(1)
    for losses, number in steps:
        mass = _powered(np.exp(losses.log_mass) * (1 + losses.slack), number)
        own = number * losses.least + losses.spacing * np.arange(len(mass))
        loss, p = np.add.outer(loss, own).ravel(), np.multiply.outer(p, mass).ravel()
    order = np.argsort(loss, kind="stable")
    return LossMasses(loss[order], p[order] * (1 + 4 * ROUNDING * len(steps)))


def _powered(mass: Reals, number: int) -> Reals:
    """Return masses of the sum of so many independent losses of a kind, each rounded up."""

    def times(one: Reals, other: Reals) -> Reals:
        return np.convolve(one, other) * (1 + 4 * ROUNDING * min(len(one), len(other)))

    return power(mass, number, times)
