"""The exact posterior table of two parts behind a multinomial release of their sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.released.two_parts import draw_table, given_true, mode_table, posterior_two
from trueup.layouts.released import ReleasedSum, half_width, redrawn
from trueup.model.prior import Flat

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


def two_parts(problem: ReleasedSum, *, drawn: bool = False) -> tuple[Integers, Integers, Reals]:
    """Return the exact posterior of two parts: their windows of counts, and the masses.

    Parameters
    ----------
    problem
        A release of two parts.
    drawn
        Whether it was a multinomial draw (Algorithm 2) instead of the mode.

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
        raise SpecError("an exact table was asked for", needed="two parts with a positive total")
    if problem.redrawn:
        raise SpecError(
            "an exact table was asked for", needed="a total that was not drawn given the noisy parts' sum"
        )
    if problem.listed:
        raise SpecError(
            "an exact table of a summed total was asked for", needed="noise of the law 'discrete-laplace'"
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
    """Return noisy counts near a released one, and all that are released as zero."""
    return np.arange(-reach if k <= reach else k - reach, k + reach + 1)


def _given(problem: ReleasedSum, law, true: Integers, noisy: Integers) -> Reals:
    """Return the mass of each noisy count (Algorithm 1: of each draw from its posterior) given each true one."""
    if problem.algorithm == 1:
        return redrawn(law, true, noisy)
    return given_true(true, noisy, law.pmf(np.arange(half_width(law) + 1)))


def _release(problem: ReleasedSum, noisy: list[Integers], drawn: bool) -> Reals:
    """Return the probability of the release given either noisy count."""
    weights = [np.maximum(y, 0) for y in noisy]
    table = _release_table(problem, weights, drawn)
    if problem.empty == "uniform":
        one = np.ones(1, np.int64)
        both = (weights[0][:, None] == 0) & (weights[1][None, :] == 0)
        table = table + both * _release_table(problem, [one, one], drawn)
    return table


def _release_table(problem: ReleasedSum, weights: list[Integers], drawn: bool) -> Reals:
    """Return the probability of the release given weights that are not all zero."""
    first, second, k = *weights, problem.counts
    if drawn:
        return draw_table(first, second, k)
    table = mode_table(first, second, k).astype(float)
    if problem.ties == "first":
        return table
    return (table + mode_table(second, first, k[::-1]).T) / 2
