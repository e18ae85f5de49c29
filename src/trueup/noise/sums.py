"""Laws of sums of independent noisy counts as tables of log masses, by convolution or Monte Carlo.

A *reading* of a count is its likelihood given its noisy versions: the masses proportional to the
product of their laws, relative to the first noisy value. One noisy version gives the law itself
(every law is symmetric). A *shape* is a reading without its place: `((law, offset), ...)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.noise.law import Reals

Shape = tuple[tuple, ...]
Shapes = Mapping[Shape, int]

WINDOW_MASS_LEFT_OUT = 1e-18
"""Mass that the window of one law leaves out."""
WIDEST_TABLE = 2**25
MIN_GAUSSIAN_VARIANCE = 16.0
"""Variance (counts squared) from which discrete Gaussians add up to one."""


@dataclass(frozen=True, eq=False)
class MassTable:
    """Log masses at the counts `low, low + 1, ...`, with a linear extension at both ends.

    A convolution of log-concave laws lies below that line, and the line is reached only where
    readings contradict each other at odds below 1e-200.
    """

    low: int
    log: Reals
    open_ended: bool = True

    def at(self, counts: NDArray) -> Reals:
        """Return the log masses at whole numbers."""
        position = np.asarray(counts, np.int64) - self.low
        inside = np.clip(position, 0, self.log.size - 1)
        beyond = position - inside
        if not self.open_ended:
            return np.where(beyond == 0, self.log[inside], -np.inf)
        slopes = self._slopes()
        return self.log[inside] + np.where(beyond < 0, -beyond * slopes[0], beyond * slopes[1])

    def _slopes(self) -> tuple[float, float]:
        """Return the change of the log mass per count at both ends of the table, outwards."""
        if self.log.size < 2:
            return -np.inf, -np.inf
        return min(self.log[0] - self.log[1], 0.0), min(self.log[-1] - self.log[-2], 0.0)


def reading_masses(shape: Shape) -> tuple[int, Reals]:
    """Return the likelihood of a count given its noisy versions: the first count, and normalised masses."""
    low = min(offset - reach(law) for law, offset in shape)
    high = max(offset + reach(law) for law, offset in shape)
    counts = window(low, high)
    log = np.sum([law.logpmf(offset - counts) for law, offset in shape], axis=0)
    masses = np.exp(log - log.max())
    return low, masses / masses.sum()


def convolved(shapes: Shapes, distance: int) -> MassTable:
    """Return the log masses of a sum of noisy counts, at least up to `distance` from 0.

    Sums of two-sided geometrics need no windows of their own: `q^|k|` is a geometric law run
    forwards after one run backwards, and running one is a recursive filter with positive terms. Nor do sums of wide
    discrete Gaussians: by Poisson summation the terms of their convolution add up to the same at every count, so that
    the sum is a discrete Gaussian to a relative 1e-60.

    Raises
    ------
    SpecError
        If the noise is too wide to tabulate.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise.laws.geometric import DiscreteLaplace
    >>> table = convolved({((DiscreteLaplace(Fraction(1)), 0),): 2}, 5)
    >>> q = np.exp(-1.0)
    >>> bool(np.isclose(np.exp(table.at([0])[0]), ((1 - q) / (1 + q)) ** 2 * (1 + q**2) / (1 - q**2)))
    True
    """
    spread = sum(count * min(law.variance for law, _ in shape) for shape, count in shapes.items()) ** 0.5
    shift = sum(count * max(abs(offset) for _, offset in shape) for shape, count in shapes.items())
    edge = int(distance + shift + 12 * spread + max(reach(s[0][0]) for s in shapes)) + 1
    bells = {shape: bell for shape in shapes if (bell := _wide_gaussian(shape))}
    masses = _gaussian(window(-edge, edge), [(*bell, shapes[shape]) for shape, bell in bells.items()])
    for shape, count in shapes.items():
        if shape in bells:
            continue
        law, only = shape[0][0], len(shape) == 1
        if only and law.rate is not None:
            masses = _filtered(masses, law.rate, count)
        else:
            masses = _added(masses, *_power(*reading_masses(shape), count, edge))
    first, last = np.flatnonzero(masses > 1e-290)[[0, -1]]
    return MassTable(int(first) - edge, np.log(masses[first : last + 1]))


def _wide_gaussian(shape: Shape) -> tuple[float, float] | None:
    """Return centre and variance of a count's likelihood under wide Gaussian noise, else None."""
    forms = [law.form for law, _ in shape]
    if not all(f and f.slope == 0 and f.curvature > 0 and f.reach == np.inf for f in forms):
        return None
    precision = 2 * sum(f.curvature for f in forms)
    centre = 2 * sum(f.curvature * offset for f, (_, offset) in zip(forms, shape, strict=True)) / precision
    return (centre, 1 / precision) if precision * MIN_GAUSSIAN_VARIANCE <= 1 else None


def _gaussian(counts: NDArray[np.int64], bells: list[tuple[float, float, int]]) -> Reals:
    """Return the masses of a sum of counts with wide Gaussian noise, at the given counts."""
    centre = sum(count * mean for mean, _, count in bells)
    variance = sum(count * v for _, v, count in bells)
    if not variance:
        return (counts == 0).astype(float)
    return np.exp(-((counts - centre) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def simulated(shapes: Shapes, draws: int, rng: np.random.Generator) -> MassTable:
    """Return log frequencies of `draws` simulated sums (Wang & Reiter 2021, section 3.1.2)."""
    sums = np.zeros(draws, np.int64)
    for shape, count in sorted(shapes.items(), key=str):
        low, masses = reading_masses(shape)
        for _ in range(count):
            sums += low + rng.choice(masses.size, draws, p=masses)
    low = int(sums.min())
    with np.errstate(divide="ignore"):
        return MassTable(low, np.log(np.bincount(sums - low) / draws), open_ended=False)


@lru_cache(maxsize=256)
def reach(law) -> int:
    """Return the half width (counts) of the window in which a law's masses are tabulated."""
    return int(law.reach(WINDOW_MASS_LEFT_OUT)) + 1


def window(low: int, high: int) -> NDArray[np.int64]:
    if high - low > WIDEST_TABLE:
        raise SpecError(
            f"the noise is so wide that {high - low:.3g} counts are possible, too many to list",
            needed="less noise: at most 2^25 possible counts",
            remedy="use total = 'independent' and a flat prior",
        )
    return np.arange(low, high + 1)


def _filtered(masses: Reals, epsilon: float, times: int) -> Reals:
    """Return masses convolved `times` times with a two-sided geometric law."""
    from scipy.signal import lfilter  # slow to import, and only summed totals need it

    q, gain = np.exp(-epsilon), -np.expm1(-epsilon)
    for _ in range(times):
        forwards = lfilter([gain], [1.0, -q], masses)
        masses = np.ascontiguousarray(lfilter([gain], [1.0, -q], forwards[::-1])[::-1])
        masses[masses < 1e-300] = 0.0
    return masses


def _power(low: int, masses: Reals, times: int, edge: int) -> tuple[int, Reals]:
    """Return the first count and the masses of the sum of `times` independent copies, by repeated squaring."""
    if times == 1:
        return low, masses
    half_low, half = _power(low, masses, times // 2, edge)
    total_low, total = _trim(2 * half_low, np.convolve(half, half), edge)
    if times % 2:
        total_low, total = _trim(total_low + low, np.convolve(total, masses), edge)
    return total_low, total


def _trim(low: int, masses: Reals, edge: int) -> tuple[int, Reals]:
    """Return the masses within -edge..edge that are not negligible, and their first count."""
    first, last = max(-edge - low, 0), min(edge - low + 1, masses.size)
    kept = masses[first:last]
    inside = np.flatnonzero(kept > 1e-300)[[0, -1]]
    return low + first + int(inside[0]), kept[inside[0] : inside[1] + 1]


def _added(masses: Reals, low: int, other: Reals) -> Reals:
    """Return the convolution of two laws on one centred window."""
    whole = np.convolve(masses, other)
    first = -low
    return whole[first : first + masses.size]
