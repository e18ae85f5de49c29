"""Upper bounds on epsilon at a given delta of composed noise, from the distribution of the privacy loss.

Let L be the loss of all steps together. What is composed is (epsilon, delta)-DP exactly where

    delta >= E[(1 - exp(epsilon - L))+]                                                                   (1)

(Sommer, Meiser and Mohammadi, 2019; Zhu, Dong and Wang, 2022, for steps of which each is bounded by one pair of
distributions). L is a sum of independent losses, whose distribution is a convolution.

**Few losses.** The convolution is summed as it is, in numbers that are not negative: k of them are off by k units in the
last place at most, and are raised by that much.

**Many losses** go onto a grid, are summed by Fourier transforms, and are rounded up. The nodes are `t_i = i h`. A
loss l between two of them is divided among both such that the mean of `exp(-L)` stays. The integrand of delta (1) is
convex in `exp(-L)`, so delta only grows (Doroshenko et al., 2022, "Connect the dots"), by the second order of h. A
division that is rounded towards the upper node makes it grow, too.

**Rounding of transforms.** Masses are tilted, `p exp(lambda t) / M(lambda)`, with the lambda whose mean is about the epsilon
that is looked for: then the masses that delta is made of are the large ones, and absolute errors are relative ones. With unit
roundoff u and N = 2^L points a transform is off by at most `16 u L` times the length of the vector in the Euclidean norm
(Higham, 2002, "Accuracy and stability of numerical algorithms", theorem 24.2, has about 7 u L for radix 2), a power n by
`8 n u`. So the masses of the sum are off by at most

    e = 16 u L (1 + sum_g n_g |p_g|) + 8 n u                                                              (2)

in that norm, where |p_g| <= 1 are the lengths of the steps' masses, and delta by e times the length of the weights of (1): this
is added. A tenth more, `exp(16 u L sqrt(N) sum_g n_g |p_g|)` at most, is for products of transforms that are off themselves.

**Beyond the window.** Losses are computed modulo N h. What is below the window appears in it, and is counted too much. What is
above has a probability of at most `exp(sum_g n_g ln M_g(lambda') - lambda' t)` for every lambda' >= 0: this is added, too.

One file: the two sums, one by one and on a grid, answer one question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil, exp, fsum, inf, log, log2, nextafter, pi

import numpy as np
from numpy.typing import NDArray

from trueup.noise.law import Reals
from trueup.noise.losses import ROUNDING, Losses, power

LEAST_POINTS, MOST_POINTS, POINTS_A_ROOT = 1 << 18, 1 << 21, 30_000
"""Points of the grid; how many for the square root of every step."""
LEFT_OUT_NATS = 30.0
"""Probability that is left out at the ends of a window, as minus its log (nats)."""


class Cumulants:
    """The log moment generating function of the privacy loss L and its first two derivatives."""

    def __init__(self, steps: Composed) -> None:
        self.parts = []
        for losses, number in steps:
            k = max(1, len(losses.log_mass) >> 11)  # of many losses every k-th stands for k
            self.parts.append((losses.loss[::k], losses.log_mass[::k] + log(k), number))

    def at(self, tilt: float) -> tuple[float, float, float]:
        """Return the log moment generating function at `tilt`, and its first two derivatives."""
        value = mean = spread = 0.0
        for loss, log_mass, number in self.parts:
            exponent = log_mass + tilt * loss
            peak = float(exponent.max())
            weight = np.exp(exponent - peak)
            total = float(weight.sum())
            centre = float(weight @ loss) / total
            value += number * (peak + log(total))
            mean += number * centre
            spread += number * float(weight @ (loss - centre) ** 2) / total
        return value, mean, max(spread, 1e-300)


def _bisect(falls: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest point at which a monotone predicate holds, by bisection of its log."""
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if falls(middle) else (low, middle)
    return high


@dataclass(frozen=True)
class Window:
    """Two exponential tilts, and the range of losses that has nearly all of the tilted mass."""

    tilt: float
    further: float
    low: float
    high: float


def _window(steps: Composed, delta: float) -> Window:
    """Choose tilts and a range of losses by a saddlepoint at delta and Chernoff's bound.

    A tilt is no larger than what tells losses of one standard deviation, or of one spacing, apart: where the largest losses are
    isolated the saddle point is none.
    """
    cumulants = Cumulants(steps)
    spread = cumulants.at(0.0)[2] ** 0.5
    least, most = 1e-6 / spread, min(30 / spread, 60 / min(losses.spacing for losses, _ in steps))

    def saddle(tilt: float) -> bool:
        value, mean, variance = cumulants.at(tilt)
        return value - tilt * mean - log(tilt * (1 + tilt)) - 0.5 * log(2 * pi * variance) > log(delta)

    def chernoff(tilt: float) -> bool:
        value, mean, _ = cumulants.at(tilt)
        return value - tilt * mean > log(delta) - LEFT_OUT_NATS

    tilt = _bisect(saddle, least, most)
    further = _bisect(chernoff, tilt, 1e3 * most)
    value = cumulants.at(tilt)[0]

    def lower(back: float) -> bool:
        own, at, _ = cumulants.at(tilt - back)
        return own - value + back * at > -LEFT_OUT_NATS

    back = _bisect(lower, least, 1e3 * most)
    return Window(tilt, further, cumulants.at(tilt - back)[1], cumulants.at(further)[1])


def on_grid(steps: Composed, delta: float) -> LossMasses | None:
    """Return masses of the summed losses on a grid, or None if the grid is too long or inaccurate."""
    window, number = _window(steps, delta), sum(n for _, n in steps)
    points = 1 << ceil(log2(min(max(LEAST_POINTS, POINTS_A_ROOT * number**0.5), MOST_POINTS)))
    if number > points // 4:
        return None
    h = _grid(steps, (window.high - window.low) / (points - number - 4))  # every step may end one node higher
    spectrum = np.ones(points // 2 + 1, complex)
    lengths = growth = log_scale = log_above = 0.0
    top = 0
    for losses, n in steps:
        index, mass = _divided(losses, h)
        nodes = h * index.astype(np.float64)
        tilted, scale = _tilted(nodes, mass, window.tilt)
        on_circle = np.bincount(index % points, tilted, points)
        length = float(np.sqrt(on_circle @ on_circle))
        spectrum *= power(np.fft.rfft(on_circle), n, np.multiply)
        lengths += n * length
        growth += n * length * points**0.5
        log_scale += n * scale
        log_above += n * _tilted(nodes, mass, window.further)[1]
        log_scale += n * ROUNDING * len(mass)  # of the sums at nodes
        top += n * int(index.max())
    each = 16 * ROUNDING * log2(points)
    if each * growth > 0.1:
        return None
    p = np.maximum(np.fft.irfft(spectrum, points), 0.0)
    first = int(np.floor(window.low / h))
    loss = h * np.arange(first, first + points, dtype=np.float64)
    p = np.roll(p, -first % points)
    error = 1.2 * (each * (1 + lengths) + 8 * number * ROUNDING) * max(1.0, float(np.sqrt(p @ p)))
    beyond = _raised(log_above, number) - window.further * loss[-1] * (1 - 1e-12)
    above = exp(min(beyond, 0.0)) if top >= first + points else 0.0
    log_scale = _raised(log_scale, number) + 8 * ROUNDING * window.tilt * float(np.abs(loss[[0, -1]]).max())
    return LossMasses(loss, p, log_scale, window.tilt, error, above)


def _raised(log_scale: float, number: int) -> float:
    """Return a sum of logarithms plus a bound on the sum's rounding error."""
    return log_scale + 2 * ROUNDING * (number + 8) * (1 + abs(log_scale))


def _grid(steps: Composed, h: float) -> float:
    """Return a grid step of at least h that suits the spacing of the losses."""
    spacings = {losses.spacing for losses, _ in steps}
    spacing = spacings.pop()
    return spacing / max(1, int(spacing / h)) if not spacings and spacing >= h else h


def _divided(losses: Losses, h: float) -> tuple[NDArray[np.int64], Reals]:
    """Return nodes and masses of losses on a grid; each mass is divided so that no loss is understated."""
    place = losses.loss / h
    index = np.floor(place).astype(np.int64)
    share = np.expm1(-(place - index) * h) / np.expm1(-h)
    share = np.clip(share + 8 * ROUNDING * (1 + np.abs(place)), 0.0, 1.0)
    mass = losses.log_mass + np.log1p(losses.slack)
    with np.errstate(divide="ignore"):
        both = np.concatenate([mass + np.log1p(-share), mass + np.log(share)])
    return np.concatenate([index, index + 1]), both


def _tilted(loss: Reals, log_mass: Reals, tilt: float) -> tuple[Reals, float]:
    """Return tilted masses with sum 1, and the log of their normalising constant, rounded up."""
    exponent = log_mass + tilt * loss
    peak = float(exponent.max())
    weight = np.exp(exponent - peak)
    total = float(weight.sum())
    kept = weight > 1e-30
    size = float((np.abs(log_mass[kept]) + tilt * np.abs(loss[kept])).max())
    return weight / total, peak + log(total) + 64 * ROUNDING * (1 + size)


Composed = Sequence[tuple[Losses, int]]
"""Losses of steps, and how many there are of each."""

MAX_LOG_SCALE = 500.0
"""Largest logarithm of a scale: what underflows, below 1e-308, is then below 1e-90."""


@dataclass(frozen=True, eq=False)
class LossMasses:
    """Masses `p exp(log_scale - tilt loss)` at increasing losses, with a bound on the error of p."""

    loss: Reals
    p: Reals
    log_scale: float = 0.0
    tilt: float = 0.0
    error: float = 0.0
    above: float = 0.0

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on the delta at an epsilon: the right side of (1), rounded up."""
        if (log_scale := self.log_scale - self.tilt * epsilon) > MAX_LOG_SCALE:
            return 1.0  # far below what is looked for
        first = int(np.searchsorted(self.loss, epsilon, "right"))
        beyond = self.loss[first:] - epsilon
        weight = np.exp(-self.tilt * beyond) * -np.expm1(-beyond)
        rounding = self.error * float(np.sqrt(weight @ weight))
        return rounded_up(exp(log_scale) * (float(np.sum(self.p[first:] * weight)) + rounding)) + self.above


def rounded_up(amount: float) -> float:
    """Return an amount plus a bound on its rounding error."""
    return amount * (1 + 1e-12)


MAX_DIRECT_LOSSES, SHORT = 1 << 20, 1 << 12
"""Most losses of a convolution that is summed as it is: of all steps, and of those of one kind."""
LEAST_DELTA = 1e-60
"""Smallest delta, less what counts as infinite, that is looked at: probabilities of it are doubles."""
EPSILON_RELATIVE_TOLERANCE = 1e-9
"""Relative accuracy to which epsilon is looked for."""


def composed_epsilon(composed: Composed, delta: Fraction) -> float:
    """Return an upper bound on epsilon at `delta` for composed noise.

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
    masses = _sum_of_losses(steps) if _few(steps) else on_grid(steps, left)
    found = min(most, _least_epsilon(masses, left, most)) if masses is not None else most
    # Losses rounded to the grid may be too small by this.
    shift = 8 * ROUNDING * sum(n * max(abs(losses.least), abs(losses.most)) for losses, n in steps)
    return max(0.0, found + rounded_up(shift))


def _least_epsilon(masses: LossMasses, delta: float, most: float) -> float:
    """Return the smallest epsilon with a delta of at most `delta`, by bisection."""
    if masses.delta(0.0) <= delta:
        return 0.0
    low, high = 0.0, most
    if masses.delta(high) > delta:
        return inf
    while high - low > EPSILON_RELATIVE_TOLERANCE * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if masses.delta(middle) <= delta else (middle, high)
    return high


# --- few losses -------------------------------------------------------------------------------


def _few(steps: Composed) -> bool:
    sizes = [number * (len(losses.log_mass) - 1) + 1 for losses, number in steps]
    together = reduce(lambda all_of, one: min(all_of * one, MAX_DIRECT_LOSSES + 1), sizes, 1)
    return max(sizes) <= SHORT and together <= MAX_DIRECT_LOSSES


def _sum_of_losses(steps: Composed) -> LossMasses:
    loss, p = np.zeros(1), np.ones(1)
    for losses, number in steps:
        mass = _powered(np.exp(losses.log_mass) * (1 + losses.slack), number)
        own = number * losses.least + losses.spacing * np.arange(len(mass))
        loss, p = np.add.outer(loss, own).ravel(), np.multiply.outer(p, mass).ravel()
    order = np.argsort(loss, kind="stable")
    return LossMasses(loss[order], p[order] * (1 + 4 * ROUNDING * len(steps)))


def _powered(mass: Reals, number: int) -> Reals:
    """Return the masses of the sum of several independent losses with equal masses."""

    def times(one: Reals, other: Reals) -> Reals:
        return np.convolve(one, other) * (1 + 4 * ROUNDING * min(len(one), len(other)))

    return power(mass, number, times)
