"""Distributions of the privacy loss when one count changes.

The loss of an output x of noise P, beside the same noise Q around a count that is e larger, is `ln(P(x) / Q(x))`, and its
distribution that of x under P. By symmetry the other direction has the same one. For noise whose mass is symmetric and
log-concave, a change by less than e is less than one by e: a best test of P against Q rejects above a threshold, and
`P(X + e > k)` grows with e.

All distributions here are on lattices: losses `least + k spacing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

ROUNDING = 2.0**-53
MAX_LOSSES = 1 << 21
"""Most losses of one distribution."""


@dataclass(frozen=True, eq=False)
class Losses:
    """Privacy losses on a grid of equally spaced values, with masses that are at least the true ones.

    Attributes
    ----------
    least, spacing
        The smallest loss, and how far apart they are (nats); spacing is 1 where there is one loss.
    log_mass
        Logarithms of their masses, correctly rounded up to `slack`.
    beyond
        Mass of outputs that the other database cannot give, and of losses that were cut off: never below.
    """

    least: float
    spacing: float
    log_mass: Reals
    beyond: float = 0.0

    @property
    def loss(self) -> Reals:
        """Return the possible losses in ascending order (nats)."""
        return self.least + self.spacing * np.arange(len(self.log_mass), dtype=np.float64)

    @property
    def most(self) -> float:
        """Return the largest finite loss (nats)."""
        return self.least + self.spacing * (len(self.log_mass) - 1)

    @property
    def slack(self) -> float:
        """Return a bound on the relative rounding error of each mass."""
        finite = self.log_mass[np.isfinite(self.log_mass)]
        return ROUNDING * (64 + 16 * float(np.abs(finite).max(initial=0.0)))


def power(base: NDArray[Any], number: int, times: Callable[..., NDArray[Any]]) -> NDArray[Any]:
    """Return a distribution of the sum of `number` draws, one or more, by repeated squaring."""
    whole = None
    while True:
        if number & 1:
            whole = base if whole is None else times(whole, base)
        number >>= 1
        if not number:
            return whole if whole is not None else base
        base = times(base, base)


def pure_losses(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Losses:
    """Return the loss distribution of randomised response, which dominates every (epsilon, delta)-DP mechanism.

    Source: Kairouz, Oh and Viswanath (2015), "The composition theorem for differential privacy", theorem 3.4.

    Examples
    --------
    >>> print(np.exp(pure_losses(Fraction(1)).log_mass).round(3), pure_losses(Fraction(1)).loss)
    [0.269 0.731] [-1.  1.]
    """
    size = float(epsilon)
    high = -np.log1p(np.exp(-size))
    beyond = float(np.nextafter(float(delta), inf)) if delta else 0.0
    return Losses(-size, 2 * size or 1.0, np.array([high - size, high]), beyond)


def laplace_losses(epsilon: Fraction, change: int) -> Losses:
    """Return the loss distribution of discrete Laplace noise when a count changes by `change`.

    Examples
    --------
    >>> found = laplace_losses(Fraction(1), 2)
    >>> print(found.loss, np.exp(found.log_mass).round(3))
    [-2.  0.  2.] [0.099 0.17  0.731]
    """
    if change >= MAX_LOSSES:
        return pure_losses(epsilon * change)
    rate = float(epsilon)
    j = np.arange(change, -1, -1)
    log_mass = np.log(-np.expm1(-rate)) - np.log1p(np.exp(-rate)) - rate * j
    log_mass[[0, -1]] = -np.log1p(np.exp(-rate)) - rate * j[[0, -1]]
    return Losses(-rate * change, 2 * rate, log_mass)


def truncated_losses(epsilon: Fraction, bound: int, change: int, log_mass: Reals, beyond: float) -> Losses:
    """Return the loss distribution of truncated Laplace noise; what only one neighbour gives adds to delta.

    Parameters
    ----------
    epsilon, bound, change
        The parameters of the law, and the change of the count.
    log_mass
        Log masses of the noise from 0 to `bound`.
    beyond
        Probability that the noise is below `change - bound`, rounded up.
    """
    if change > 2 * bound:
        return Losses(0.0, 1.0, np.array([-inf]), 1.0)
    noise = np.arange(change - bound, bound + 1)
    j = np.clip(noise, 0, change)
    mass = np.bincount(change - j, np.exp(log_mass[np.abs(noise)]), minlength=change + 1)
    with np.errstate(divide="ignore"):
        return Losses(-float(epsilon) * change, 2 * float(epsilon), np.log(mass), beyond)


def gaussian_losses(sigma2: Fraction, change: int, log_normaliser: float, cut: float) -> Losses:
    """Return the distribution of the losses `change (change - 2 x) / (2 sigma2)` of discrete Gaussian noise x.

    Noise beyond K has a probability of at most `P(X = K) sigma2 / K`, for `P(X = K + j) <= P(X = K) exp(-K j / sigma2)`. Above
    it counts as an infinite loss, below as the smallest loss that is kept. Very wide noise is taken in blocks of m
    counts around c: their mass is at most `P(X = c)` times the sum of `exp(-c j / sigma2)`, and their loss the largest of them.

    Parameters
    ----------
    sigma2, change
        The parameter of the law, and the change of the count.
    log_normaliser
        Logarithm of the sum of the masses before they are made one, never above.
    cut
        Probability beyond which large losses count as infinite.

    Examples
    --------
    >>> found = gaussian_losses(Fraction(4), 1, np.log(np.sqrt(8 * np.pi)), 1e-12)
    >>> print(f"{found.spacing} {np.exp(found.log_mass).sum():.9f} {found.beyond < 1e-12}")
    0.25 1.000000000 True
    """
    width = float(sigma2)
    least = int(np.ceil(np.sqrt(width * 2 * -np.log(cut)))) + 1
    block = max(1, -(-(2 * least + 1) // MAX_LOSSES)) | 1
    blocks = -(-least // block)
    centre = block * np.arange(blocks, -blocks - 1, -1.0)
    log_mass = -centre * centre / (2 * width) - log_normaliser
    if block > 1:
        log_mass += _log_block(centre / width, block)
    reach = block * blocks + block // 2
    tail = np.exp(-(reach**2) / (2 * width) - log_normaliser) * width / reach * (1 + 1e-9)
    log_mass[0] = np.logaddexp(log_mass[0], np.log(tail)) if tail else log_mass[0]
    log_mass = np.maximum(
        log_mass, np.log(cut) - 40.0
    )  # so that no logarithm, and no rounding of it, is large
    lowest = Fraction(change * (change - 2 * block * blocks + 2 * (block // 2)), 2) / sigma2
    return Losses(float(lowest), float(change * block / sigma2), log_mass, float(tail))


def _log_block(rate: Reals, block: int) -> Reals:
    """Return the log of the sum of `exp(-rate j)` over an odd number of whole j around 0, rounded up."""
    half = np.abs(rate) / 2
    safe = np.where(half > 0, half, 1.0)
    return np.where(half > 0, _log_sinh(block * safe) - _log_sinh(safe), np.log(block)) + 1e-14 * (
        1 + block * half
    )


def _log_sinh(x: Reals) -> Reals:
    return x + np.log(-np.expm1(-2 * x) / 2)
