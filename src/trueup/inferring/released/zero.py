"""The posterior of the true counts of a total that was released as zero.

Whatever the noisy parts were, they split nothing into nothings. So the posterior is the prior times
the likelihood of the true total alone,

    T(N) = P(the released total is 0 | N),

and a draw is a total, then a split of it. A flat prior is enough: T falls as fast as the noise does,
and the number of ways to split N, C(N + S - 1, S - 1), only as a power of N. Given their sum, flat
counts are a Dirichlet-multinomial with parameters 1, negative binomials of size r one with
parameters r, and Poisson counts a multinomial; priors with finitely many counts go through the
messages of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.inferring.released import largest_released_as_zero
from trueup.kernel.messages.solve import Solved, joint_draws, solve
from trueup.kernel.released.exact import log_product
from trueup.layouts.factors import FactorTable
from trueup.layouts.released import ReleasedSum, half_width
from trueup.model.prior import Flat, NegativeBinomial, Poisson

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

TOTAL_DEPTH_NATS = 60.0
"""Totals end where their log mass is this far below its largest value."""


@dataclass(frozen=True, eq=False)
class ZeroPosterior:
    """Independent draws of the true counts, given that their total was released as zero.

    Attributes
    ----------
    masses
        Posterior masses of the true total 0, 1, ...; None where `solved` holds them.
    left_out
        Bound on the posterior mass of larger totals.
    solved
        Messages, for priors with finitely many counts.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import DiscreteLaplace
    >>> law = DiscreteLaplace(Fraction(1))
    >>> zero = ZeroPosterior.of(ReleasedSum(np.zeros(2, np.int64), [law, law], law))
    >>> zero.draw(3, np.random.default_rng(0)).shape, zero.left_out < 1e-20
    ((3, 2), True)
    """

    problem: ReleasedSum
    masses: Reals | None
    left_out: float
    solved: Solved | None = None

    @classmethod
    def of(cls, problem: ReleasedSum) -> ZeroPosterior:
        """Return the posterior, given a total that was released as zero.

        Raises
        ------
        InfeasibleError
            The prior allows no total that is released as zero.
        """
        if not isinstance(problem.prior, Flat | Poisson | NegativeBinomial):
            return cls._by_messages(problem)
        last = 64
        while True:
            log = log_likelihood(problem, last) + _log_prior(problem, last)
            top = log.max()
            if top == -np.inf and last >= _widest(problem):
                raise _impossible()
            if top > -np.inf and log[-1] < top - TOTAL_DEPTH_NATS and log[-1] <= log[-2]:
                masses = np.exp(log - top)
                ratio = np.exp(log[-1] - log[-2]) if log[-1] > -np.inf else 0.0
                return cls(problem, masses / masses.sum(), float(masses[-1] / (1 - ratio) / masses.sum()))
            last *= 2

    @classmethod
    def _by_messages(cls, problem: ReleasedSum) -> ZeroPosterior:
        window = problem.prior.window()
        assert window is not None
        n, last = len(problem.laws), len(problem.laws) * window[1]
        table = FactorTable(np.zeros(n + 1, np.int64), np.full(n + 1, last))
        table.add_masses("total", log_likelihood(problem, last), np.zeros(1, np.int64))
        table.add_prior(problem.prior, np.arange(1, n + 1), TOTAL_DEPTH_NATS)
        solved = solve(np.concatenate([[1], np.full(n + 1, n + 1)]), table.build())
        if solved.dropped >= 1.0:
            raise _impossible()
        return cls(problem, None, solved.dropped, solved)

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Draw true counts `(d, n)`."""
        if self.solved is not None:
            return joint_draws(self.solved, draws, rng)[:, 1:]
        assert self.masses is not None
        totals = rng.choice(self.masses.size, draws, p=self.masses)
        shares = np.full((draws, len(self.problem.laws)), 1.0 / len(self.problem.laws))
        if isinstance(self.problem.prior, Poisson):
            mean = np.broadcast_to(self.problem.prior.mean, shares.shape[1])
            shares[:] = mean / mean.sum()
        elif (size := _dirichlet_size(self.problem)) is not None:
            shares = rng.gamma(size, size=shares.shape)
            shares /= shares.sum(axis=1, keepdims=True)
        return rng.multinomial(totals, shares)


def _dirichlet_size(problem: ReleasedSum) -> float | None:
    """Return the Dirichlet parameter of the parts' shares, or None if they are fixed."""
    match problem.prior:
        case Flat():
            return 1.0
        case NegativeBinomial(size=size):
            return float(size)  # pyright: ignore[reportArgumentType]
    return None


def _log_prior(problem: ReleasedSum, last: int) -> Reals:
    """Return the log prior probabilities of the totals 0..last."""
    from scipy.special import gammaln

    n, totals = len(problem.laws), np.arange(last + 1)
    match problem.prior:
        case Poisson():
            total = problem.prior_total
            return (problem.sum_of_parts() if isinstance(total, Flat) else total).logpmf(totals)
        case NegativeBinomial(mean=mean, size=size):
            return NegativeBinomial(n * mean, n * size).logpmf(totals)  # pyright: ignore[reportOperatorIssue]
    if isinstance(problem.prior_total, Flat):
        return gammaln(totals + n) - gammaln(totals + 1.0) - gammaln(n)
    return problem.prior_total.logpmf(totals)


def _widest(problem: ReleasedSum) -> float:
    """Return a total above which the posterior has no mass, by the noise or by the prior."""
    window = problem.prior_total.window()
    reach = [half_width(law) for law in problem.every_law()]
    return max(sum(reach) * len(problem.laws), 0 if window is None else window[1])


def _impossible() -> InfeasibleError:
    return InfeasibleError(
        "the prior allows no true counts whose total is released as zero",
        needed="a prior under which small counts are possible",
        remedy="give such a prior, or the method and the laws with which the total was released",
    )


def log_likelihood(problem: ReleasedSum, last: int) -> Reals:
    """Return the log likelihood of the true totals 0..last, with small relative error.

    With independent totals n <= 0 is released as zero (Algorithm 1: a draw that is zero); with
    summed ones, where m is n clipped to n* - K .. n* + K, both n <= 0 and n* <= K, or n* <= -K.
    """
    totals, law = np.arange(last + 1), problem.total_law
    if law is None:
        of_sum = _log_of_sum(problem, last)
        if problem.redrawn:
            return _log_drawn_zero(of_sum, totals)
        return log_at_most(of_sum, -totals)
    log = law.logpmf(np.arange(last + 2 * half_width(law)))
    if problem.redrawn:
        return _log_drawn_zero_of_both(problem, totals)
    if problem.algorithm == 1 and law.variance > 0:
        return _log_drawn_zero(log, totals)
    if problem.listed:
        return _log_listed(problem, totals)
    below = log_at_most(log, -totals)
    if (radius := problem.radius()) < 0:
        return below
    of_sum = _log_of_sum(problem, last + radius)
    return np.logaddexp(
        below + log_at_most(of_sum, radius - totals),
        _log_complement(below) + log_at_most(of_sum, -radius - totals),
    )


def _log_listed(problem: ReleasedSum, totals: Integers) -> Reals:
    """Return, for each true total, the log probability that the mode given both noisy counts is zero."""
    width, last = half_width(problem.total_law), int(totals[-1])
    far = int(12 * problem.spread) + max(map(half_width, problem.kinds[0]))
    sums = np.arange(-far, last + far + 1)
    most = largest_released_as_zero(problem, np.arange(-2 * width, last + width + 1), sums)
    eta = problem.sum_of_noise(last + far)
    with np.errstate(divide="ignore"):
        below = np.log(problem.total_law.cdf(most[:, None] - totals))
    return np.logaddexp.reduce(eta.at(sums[:, None] - totals) + below, axis=0)


def _log_of_sum(problem: ReleasedSum, last: int) -> Reals:
    """Return log masses of the noise in the sum of parts at 0, 1, ..., up to well beyond `last`."""
    far = last + int(12 * problem.spread) + 2 * max(map(half_width, problem.kinds[0]))
    return problem.sum_of_noise(far).at(np.arange(far))


def log_at_most(log: Reals, noise: Integers) -> Reals:
    """Return the log probability of noise of at most `noise`, given log masses of a symmetric law."""
    tail = np.logaddexp.accumulate(log[::-1])[::-1]  # of at least 0, 1, ...
    small = tail[np.maximum(-noise, 0)]
    return np.where(noise <= 0, small, _log_complement(tail[np.maximum(noise, 0) + 1]))


def _log_complement(log: Reals) -> Reals:
    """Return the log of one minus a probability."""
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(np.minimum(log, 0.0)))


def _log_drawn_zero(log: Reals, totals: Integers) -> Reals:
    """Return, for each true total, the log probability that a draw given its noisy count is zero."""
    width = log.size - totals.size
    noisy = np.arange(-width // 2, totals[-1] + width // 2)
    zero = log[np.abs(noisy)] - log_at_most(log, noisy)
    rows = [np.logaddexp.reduce(log[np.minimum(np.abs(noisy - n), log.size - 1)] + zero) for n in totals]
    return np.array(rows)


def _log_drawn_zero_of_both(problem: ReleasedSum, totals: Integers) -> Reals:
    """Return, for each true total, the log probability that a draw given noisy total and sum is zero."""
    law, last = problem.total_law, int(totals[-1])
    width, far = half_width(law), int(12 * problem.spread) + max(map(half_width, problem.kinds[0]))
    own, noisy = np.arange(-width, last + width + 1), np.arange(-far, last + far + 1)
    drawn = np.arange(last + 2 * width + 1)
    eta = problem.sum_of_noise(2 * (last + width + far))
    mass = log_product(law.logpmf(own[:, None] - drawn), eta.at(noisy - drawn[:, None]))
    zero = law.logpmf(own)[:, None] + eta.at(noisy) - mass
    given_total = law.logpmf(own[:, None] - totals) + log_product(zero, eta.at(noisy[:, None] - totals))
    return np.logaddexp.reduce(given_total, axis=0)
