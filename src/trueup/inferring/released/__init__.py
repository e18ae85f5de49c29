"""Posteriors of true counts, given only counts released by a multinomial method.

Here: releases of a total and its parts: two parts have an exact table, and a total may be estimated from the parts' sum.

The total is estimated from its own noisy count n and the sum n* of the noisy parts, under any laws, by the mode of
`p(n - M) eta(n* - M)` over M >= 0, the lower middle of a plateau. Both laws are symmetric and log-concave, so it lies between n
and n*, and rises with n. Two-sided geometric noise has a rule of its own (`ReleasedSum.radius`); for all other laws the
estimates are listed.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.released import Tables, Total, redrawn_total
from trueup.kernel.released.exact import draw_table, given_true, mode_table, posterior_two
from trueup.layouts.released import ReleasedSum, half_width, redrawn
from trueup.model.prior import Flat
from trueup.noise.law import Law
from trueup.noise.sums import MassTable, convolved

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Parts = tuple[tuple[Law, int], ...]
"""Laws of the noise of the parts of a sum, and how many have each."""


def two_parts(problem: ReleasedSum, *, drawn: bool = False) -> tuple[Integers, Integers, Reals]:
    """Return the exact posterior of two parts of a released sum: windows of counts, and their masses.

    Parameters
    ----------
    problem
        A release of two parts.
    drawn
        True if the release was a multinomial draw (Algorithm 2) instead of the mode.

    Notes
    -----
    A window reaches as far from the released count as the three noise terms do together, which leaves out about 1e-18.
    Of two-sided geometric noise that is as far as the widest does alone: what three lose adds up.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import DiscreteLaplace
    >>> law = DiscreteLaplace(Fraction(1))
    >>> first, second, mass = two_parts(ReleasedSum(np.array([250, 357]), [law, law], law))
    >>> print(round(float(mass[first == 250, second == 357][0]), 4))
    0.2136
    """
    if len(problem.laws) != 2 or problem.trials == 0:
        raise SpecError(
            "the exact posterior is requested for "
            f"{'a total of zero' if len(problem.laws) == 2 else f'{len(problem.laws)} parts'}",
            needed="two parts with a positive total",
        )
    if problem.redrawn:
        raise SpecError(
            "the exact posterior is requested, but the total was drawn given the sum of the noisy parts",
            needed="a total that was drawn independently of the noisy parts",
        )
    if problem.listed:
        raise SpecError(
            "the exact posterior is requested for noise that is not of the law 'discrete-laplace'",
            needed="noise of the law 'discrete-laplace'",
        )
    radius = problem.radius()
    total = problem.likelihood(np.zeros(1), radius)
    laws = [*problem.laws, *([] if problem.total_law is None else [problem.total_law])]
    together = max if all(law.rate is not None for law in laws) else sum
    reach = together(problem.width(law) for law in laws) + 2 + max(radius, 0)
    if drawn:
        reach += int(12 * (problem.trials + 1) ** 0.5)
    noisy = [_noisy_window(int(k), reach) for k in problem.counts]
    if problem.algorithm == 1:
        noisy = [y[y >= 0] for y in noisy]
    true = [np.arange(max(int(k) - reach, 0), int(k) + reach + 1) for k in problem.counts]
    release = _release(problem, noisy, drawn)
    given = [_given(problem, law, n, y) for law, n, y in zip(problem.laws, true, noisy)]
    mass = posterior_two(
        (true[0], true[1]), (noisy[0], noisy[1]), (given[0], given[1]), release, total, problem.trials
    )
    if not isinstance(problem.prior, Flat):
        prior = [np.exp(problem.prior.at(part).logpmf(n)) for part, n in enumerate(true)]
        mass = mass * np.multiply.outer(*prior)
        mass = mass / mass.sum()
    return true[0], true[1], mass


def _noisy_window(k: int, reach: int) -> Integers:
    """Return the noisy counts within `reach` of the released count k, from -reach if k is small."""
    return np.arange(-reach if k <= reach else k - reach, k + reach + 1)


def _given(problem: ReleasedSum, law, true: Integers, noisy: Integers) -> Reals:
    """Return the probability of each noisy count (or redrawn count) given each true count."""
    if problem.algorithm == 1:
        return redrawn(law, true, noisy)
    return given_true(true, noisy, law.pmf(np.arange(half_width(law) + 1)))


def _release(problem: ReleasedSum, noisy: list[Integers], drawn: bool) -> Reals:
    """Return the probability of the released counts for every pair of noisy counts of the two parts."""
    weights = [np.maximum(y, 0) for y in noisy]
    table = _release_table(problem, weights, drawn)
    if problem.empty == "uniform":
        one = np.ones(1, np.int64)
        both = (weights[0][:, None] == 0) & (weights[1][None, :] == 0)
        table = table + both * _release_table(problem, [one, one], drawn)
    return table


def _release_table(problem: ReleasedSum, weights: list[Integers], drawn: bool) -> Reals:
    """Return the probability of the released counts for every pair of weights, not both zero."""
    first, second, k = *weights, problem.counts
    if drawn:
        return draw_table(first, second, k)
    table = mode_table(first, second, k).astype(float)
    if problem.ties == "first":
        return table
    return (table + mode_table(second, first, k[::-1]).T) / 2


MOST_ENTRIES = 2**23
"""Largest table of true totals by sums of noisy parts."""
MAX_GAP_PROBABILITY = 1e-15
"""Probability of gaps at which a total's own noise need not decide."""
LOG_MASS_TOLERANCE = 1e-9
"""Log masses closer than this are equal, as where counts are released."""


def summed_tables(problem: ReleasedSum) -> tuple[Tables, Total]:
    """Return tables of the parts' laws, and the released total's likelihood if it depends on the parts.

    Examples
    --------
    >>> from trueup.noise import TruncatedGeometric
    >>> law, wide = TruncatedGeometric("1", 4), TruncatedGeometric("1/4", 9)
    >>> tables, total = summed_tables(ReleasedSum(np.array([3, 5]), [law, law], wide, "summed"))
    >>> total.joint.shape, bool(np.isfinite(total.ceiling).all())
    ((29, 53), True)
    """
    m, width = problem.trials, half_width(problem.total_law)
    reach = int(12 * problem.spread) + max(map(half_width, problem.kinds[0]))
    true, own = (
        np.arange(max(m - 2 * width, 0), m + 2 * width + 1),
        np.arange(m - 2 * width, m + 2 * width + 1),
    )
    sums = np.arange(m - reach, m + reach + 1)
    refuse_wide(own.size * sums.size)
    reached = estimates(problem, own, sums) == m
    with np.errstate(divide="ignore"):
        log = np.log(problem.total_law.pmf(true[:, None] - own) @ reached)
    log = log + problem.log_prior_of_split(true)[:, None]
    tables = problem.tables(on_sum=True)
    return tables, redrawn_total(log, int(true[0]), int(sums[0]), m, tables.tilt, 0.0, True)


def estimates(problem: ReleasedSum, own: Integers, sums: Integers) -> Integers:
    """Return the estimated total, for every noisy total and every sum of noisy parts, `(own, sums)`."""
    return modes(problem.total_law, tuple(Counter(problem.laws).items()), own, sums)


def modes(law: Law, parts: Parts, own: Integers, sums: Integers) -> Integers:
    """Return the most probable total, given its noisy count and the sum of its noisy parts, `(own, sums)`."""
    widest = 1 << int(max(abs(own[0] - sums[-1]), abs(own[-1] - sums[0]), 1)).bit_length()
    low, high = np.moveaxis(_plateaus(law, parts, widest)[own[:, None] - sums + widest], -1, 0) + sums
    low = np.maximum(low, 0)
    return low + (np.maximum(high, low) - low) // 2


@lru_cache(maxsize=32)
def _plateaus(law: Law, parts: Parts, widest: int) -> Integers:
    """Return first and last mode relative to the noisy sum, `(gaps, 2)`, for every gap up to `widest`."""
    eta = noise_of_sum(parts, widest)
    return np.array([_plateau(law, eta, gap) for gap in range(-widest, widest + 1)])


def noise_of_sum(parts: Parts, distance: int) -> MassTable:
    """Return log masses of the noise in the sum of the parts, out to at least `distance` counts."""
    return _kept_noise_of_sum(parts, 1 << max(int(distance).bit_length(), 6))


@lru_cache(maxsize=32)
def _kept_noise_of_sum(parts: Parts, distance: int) -> MassTable:
    return convolved({((law, 0),): number for law, number in parts}, distance)


def _plateau(law: Law, eta: MassTable, gap: int) -> tuple[int, int]:
    """Return first and last mode relative to the noisy sum, for one gap between noisy total and noisy sum."""
    between = np.arange(min(gap, 0), max(gap, 0) + 1)
    log = law.logpmf(gap - between) + eta.at(between)
    highest = np.flatnonzero(log >= log.max() - LOG_MASS_TOLERANCE)
    return int(between[highest[0]]), int(between[highest[-1]])


def own_decides(own, below, parts: int) -> bool:
    """Return True if the most probable total is always the noisy total, except with negligible probability.

    By log-concavity it is if the log mass of the sum of the parts' noise is less steep at the largest gap than that of the
    total's noise at zero. Two-sided geometric sums of two parts or more are so at every gap, if no rate is above the total's.

    Examples
    --------
    >>> from trueup.noise import TruncatedGeometric
    >>> [own_decides(TruncatedGeometric("1", 50), TruncatedGeometric("1", bound), 3) for bound in (4, 50)]
    [False, True]
    """
    if own.rate is not None and below.rate is not None:
        return own.rate > below.rate or (own.rate == below.rate and parts > 1)
    shapes = {((own, 0),): 1, ((below, 0),): parts} if own != below else {((own, 0),): parts + 1}
    of_gaps = convolved(shapes, 0)
    beyond = 2 * np.exp(of_gaps.log)[::-1].cumsum()[::-1]
    gap = of_gaps.low + int(np.flatnonzero(beyond > MAX_GAP_PROBABILITY)[-1])
    ends = convolved({((below, 0),): parts}, gap + 1).at(np.array([gap, gap + 1]))
    steepest = ends[0] - ends[1]
    return bool(steepest < own.logpmf(0) - own.logpmf(1) - LOG_MASS_TOLERANCE)


def largest_released_as_zero(problem: ReleasedSum, own: Integers, sums: Integers) -> Integers:
    """Return, for every sum of noisy parts, the largest noisy total whose estimate is zero."""
    refuse_wide(own.size * sums.size)
    return own[0] - 1 + (estimates(problem, own, sums) == 0).sum(axis=0)


def refuse_wide(entries: int) -> None:
    """Refuse a table with too many pairs of a total and a sum of noisy parts."""
    if entries > MOST_ENTRIES:
        raise SpecError(
            f"the exact posterior needs a table of {entries:.2g} pairs of a total and a sum of noisy parts, which is "
            "too large",
            needed="a total and parts with less noise: at most 2^23 pairs",
            remedy="use the measurements with 'tree-exact', where they are public",
        )
