"""A total estimated from its own noisy count n and the sum n* of the noisy parts, under any laws.

The estimate is the mode of `p(n - M) eta(n* - M)` over M >= 0, the lower middle of a plateau. Both laws are symmetric and
log-concave, so it lies between n and n*, and rises with n. Two-sided geometric noise has a rule of its own
(`ReleasedSum.radius`); for all other laws the estimates are listed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.released.redrawn import redrawn_total
from trueup.kernel.released.tables import Tables, Total
from trueup.layouts.released import ReleasedSum, half_width
from trueup.noise.sums import convolved

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
MOST_ENTRIES = 2**23
"""Largest table of true totals by sums of noisy parts."""
LEFT_OUT = 1e-15
"""Probability of gaps at which a total's own noise need not decide."""
TIE = 1e-9
"""Log masses closer than this are equal, as where counts are released."""


def summed_tables(problem: ReleasedSum) -> tuple[Tables, Total]:
    """Tabulate the parts, and the likelihood of the released total given the true one and the noisy parts' sum.

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
    """Return the estimate of the total for every noisy total and every sum of noisy parts, `(own, sums)`."""
    gaps = np.arange(own[0] - sums[-1], own[-1] - sums[0] + 1)
    eta = problem.sum_of_noise(int(np.abs(gaps).max()))
    plateau = np.array([_plateau(problem.total_law, eta, int(gap)) for gap in gaps])
    low, high = np.moveaxis(plateau[own[:, None] - sums - gaps[0]], -1, 0) + sums
    low = np.maximum(low, 0)
    return low + (np.maximum(high, low) - low) // 2


def _plateau(law, eta, gap: int) -> tuple[int, int]:
    """Return first and last mode, less n*, if n is so far above n*."""
    between = np.arange(min(gap, 0), max(gap, 0) + 1)
    log = law.logpmf(gap - between) + eta.at(between)
    highest = np.flatnonzero(log >= log.max() - TIE)
    return int(between[highest[0]]), int(between[highest[-1]])


def own_decides(own, below, parts: int) -> bool:
    """Return True if the mode is n itself, but for gaps between n and n* of probability `LEFT_OUT`.

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
    gap = of_gaps.low + int(np.flatnonzero(beyond > LEFT_OUT)[-1])
    ends = convolved({((below, 0),): parts}, gap + 1).at(np.array([gap, gap + 1]))
    steepest = ends[0] - ends[1]
    return bool(steepest < own.logpmf(0) - own.logpmf(1) - TIE)


def largest_released_as_zero(problem: ReleasedSum, own: Integers, sums: Integers) -> Integers:
    """Return for every sum of noisy parts the largest noisy total estimated as zero; below all if there is none."""
    refuse_wide(own.size * sums.size)
    return own[0] - 1 + (estimates(problem, own, sums) == 0).sum(axis=0)


def refuse_wide(entries: int) -> None:
    """Refuse tables that are too large."""
    if entries > MOST_ENTRIES:
        raise SpecError(
            f"a table of {entries:.2g} pairs of a total and a sum of noisy parts is too large",
            needed="a total and parts whose noise fits a table of 2^23 pairs",
            remedy="use the measurements with 'tree-exact', where they are public",
        )
