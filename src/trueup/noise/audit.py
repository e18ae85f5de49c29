"""Audits of a law's sampler, which compare the privacy loss that its draws show with the stated one.

Everything is stated for one count that moves by one. The draws can refute a claim, at a stated confidence; they
cannot prove it. The tables can be proven, and are: every first word, against an independent computation.

The tables are built with binary enclosures and recurrences; here the standard library's decimal exponential,
correctly rounded to 60 digits, is summed afresh.

One file: draws and first words are judged against one claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.noise.law import Integers, Reals, Sensitivity, Words
from trueup.noise.laws import draws as checked_draws
from trueup.noise.samplers import UNDECIDED, Inversion
from trueup.noise.samplers.gaussian import GaussianTable, GaussianWide
from trueup.noise.samplers.geometric import TwoSidedGeometric

Cdf = Callable[[int], Decimal]
_DECIMAL_DIGITS = 60


@dataclass(frozen=True)
class FirstWords:
    """Numbers of cells of sampling tables that were checked, left undecided by the first word, or wrong."""

    tables: int
    cells: int
    undecided: int
    wrong: int


def check_first_words(law: Any) -> FirstWords:
    """Check the sampling tables of a law cell by cell; return the numbers of undecided and wrong cells.

    A wide law is drawn digit by digit, so its digits' tables are checked; the wide discrete Gaussian is drawn
    by rejection, and the tables are those of its proposals.

    Examples
    --------
    >>> from trueup.noise import DiscreteLaplace
    >>> check_first_words(DiscreteLaplace("1/10"))
    FirstWords(tables=1, cells=65536, undecided=182, wrong=0)
    """
    with localcontext(Context(prec=_DECIMAL_DIGITS)):
        found = [(table, wrong_cells(table, cdf)) for table, cdf in _tables(law)]
    lookups = [table.lookup for table, _ in found]
    return FirstWords(
        tables=len(found),
        cells=sum(map(len, lookups)),
        undecided=sum(int(np.sum(lookup == UNDECIDED)) for lookup in lookups),
        wrong=sum(wrong for _, wrong in found),
    )


def wrong_cells(table: Inversion, cdf: Cdf) -> int:
    """Return the number of cells of a sampling table that give a wrong draw for some uniform number."""
    cells = 1 << table.lookup_bits
    edges = [0, *(np.flatnonzero(np.diff(table.lookup)) + 1).tolist(), cells]
    wrong = 0
    for start, stop in pairwise(edges):
        value = int(table.lookup[start])
        if value != UNDECIDED and not cdf(value - 1) * cells <= start < stop <= cdf(value) * cells:
            wrong += stop - start
    return wrong


def _tables(law: Any) -> Iterator[tuple[Inversion, Cdf]]:
    sampler = law.sampler
    if isinstance(sampler, GaussianWide):
        sampler = sampler.envelope
    if isinstance(sampler, TwoSidedGeometric):
        yield from _digits(sampler)
    elif isinstance(sampler, GaussianTable):
        rate = _decimal(2 * sampler.sigma2)
        yield sampler, _cumulated(lambda k: (-k * k / rate).exp(), len(sampler.support))
    else:
        rate = _decimal(law.epsilon)
        yield sampler, _cumulated(lambda k: (-rate * abs(k)).exp(), law.bound)


def _digits(sampler: TwoSidedGeometric) -> Iterator[tuple[Inversion, Cdf]]:
    rate, shift = _decimal(sampler.epsilon), 0
    for table, bits in zip(sampler.low, sampler.low_bits):
        yield table, _running([(-rate * 2**shift * digit).exp() for digit in range(1 << bits)], 0)
        shift += bits
    yield sampler.first, _first_digit(rate, 1 << shift)


def _first_digit(rate: Decimal, base: int) -> Cdf:
    # X = base y + l: the mass of y sums exp(-rate |X|) over the digits l, where |X| = base |y| - l if y < 0.
    up = sum(((-rate * digit).exp() for digit in range(base)), Decimal(0))
    down = sum(((rate * digit).exp() for digit in range(base)), Decimal(0))
    furthest = int(140 / (rate * base)) + 2
    return _cumulated(lambda y: (-rate * base * abs(y)).exp() * (up if y >= 0 else down), furthest)


def _cumulated(mass: Callable[[int], Decimal], furthest: int) -> Cdf:
    """Return the distribution function of a law on `-furthest .. furthest`, from masses up to a factor."""
    return _running([mass(k) for k in range(-furthest, furthest + 1)], -furthest)


def _running(masses: list[Decimal], first: int) -> Cdf:
    whole, total, known = sum(masses, Decimal(0)), Decimal(0), []
    for mass in masses:
        total += mass
        known.append(total / whole)

    def cdf(k: int) -> Decimal:
        if not first <= k < first + len(known):
            return Decimal(int(k >= first))
        return known[k - first]

    return cdf


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


_DRAWS_PER_BLOCK = 1 << 22
_MAX_REACH_COUNTS = 1 << 20
_MAX_EVENTS = 64
_ONE = Sensitivity.of(cells=1, each=1)


@dataclass(frozen=True)
class LogRatio:
    """A log ratio `log P(X = noise) / P(X = noise + 1)` as estimated from draws and as under the law."""

    noise: int
    measured: float
    exact: float
    error: float


@dataclass(frozen=True)
class Audit:
    """The results of a statistical audit of a law's sampler.

    Attributes
    ----------
    law, parameters, draws
        The audited law with its parameters, and the number of draws.
    confidence
        Confidence of `epsilon_at_least`, and of the verdict on the log ratios.
    delta
        The delta at which epsilon is stated: the law's own, or the one asked for.
    epsilon_claimed
        Epsilon of the law at that delta, for a move by one count.
    epsilon_at_least
        Lower bound on the epsilon of the sampler, from draws.
    log_ratios
        Adjacent log ratios where both masses are frequent enough.
    log_ratio_p
        Probability of a deviation as large as the largest among them, under the law (Bonferroni).
    first_words
        The exhaustive check of the tables.
    """

    law: str
    parameters: dict[str, str]
    draws: int
    confidence: float
    delta: float
    epsilon_claimed: float
    epsilon_at_least: float
    log_ratios: tuple[LogRatio, ...]
    log_ratio_p: float
    first_words: FirstWords

    @property
    def largest_deviation(self) -> LogRatio | None:
        """Return the largest deviation of a log ratio from the law, in standard errors."""
        return max(self.log_ratios, key=lambda r: abs(r.measured - r.exact) / r.error, default=None)

    @property
    def passed(self) -> bool:
        """Return True if neither draws nor tables refute the stated loss."""
        agrees = self.epsilon_at_least <= self.epsilon_claimed and self.log_ratio_p >= 1 - self.confidence
        return agrees and self.first_words.wrong == 0


def audit(
    law: Any, size: int, words: Words, *, delta: float | None = None, confidence: float = 0.999999
) -> Audit:
    """Audit the sampler of a law: compare the privacy loss that its draws show with the stated one.

    Parameters
    ----------
    law
        A law with a sampler.
    size
        Number of draws, at least 1,000.
    words
        Source of fresh random bytes.
    delta
        State epsilon at this delta; by default the law's own (pure: 0), and 1/1,000 for the discrete Gaussian.
    confidence
        The confidence level of every statement that is made from draws.

    Raises
    ------
    SpecError
        If the law has no sampler, or a parameter is out of range.

    Examples
    --------
    >>> import secrets
    >>> from trueup.noise import DiscreteLaplace
    >>> found = audit(DiscreteLaplace("1"), 100_000, secrets.token_bytes)
    >>> found.passed, found.first_words.cells, found.first_words.wrong
    (True, 65536, 0)
    >>> 0.9 < found.epsilon_at_least <= 1
    True
    """
    _refuse_unsuitable(law, size, delta, confidence)
    claimed, delta = _claim(law, delta)
    halves = [audit_histogram(law, size // 2, words) for _ in range(2)]
    ratios = log_ratios(law, halves[0] + halves[1])
    return Audit(
        law=law.name,
        parameters=law.parameters(),
        draws=2 * (size // 2),
        confidence=confidence,
        delta=delta,
        epsilon_claimed=claimed,
        epsilon_at_least=epsilon_at_least(law, halves, delta, confidence),
        log_ratios=ratios,
        log_ratio_p=_deviation_p(ratios),
        first_words=check_first_words(law),
    )


def _refuse_unsuitable(law: Any, size: int, delta: float | None, confidence: float) -> None:
    if not (law.discrete and law.additive) or law.exact:
        raise SpecError(
            f"noise of law {law.name!r} cannot be drawn", needed="a law that adds whole-number noise"
        )
    if law.joint:
        raise SpecError(
            f"law {law.name!r} draws the noise of many counts together, to keep invariants",
            needed="a law that draws the noise of one count",
        )
    if checked_draws(size) < 1000:
        raise SpecError(f"{size} draws are requested", needed="at least 1,000 draws")
    if not 0.5 < confidence < 1:
        raise SpecError(f"the confidence is {confidence}", needed="a number above 0.5 and below 1")
    if not 0 <= (delta or 0) < 1:
        raise SpecError(f"delta is {delta}", needed="a number of 0 or more and below 1")


def _claim(law: Any, delta: float | None) -> tuple[float, float]:
    """Return the (epsilon, delta) that the law states, or the exact epsilon at another delta."""
    cost = law.cost(_ONE)
    if delta is None and cost.currency == "epsilon":
        return float(cost.amount), float(cost.delta)
    delta = 1e-3 if delta is None else delta
    return claimed_epsilon(law, delta), delta


def audit_histogram(law: Any, size: int, words: Words) -> Integers:
    """Return how often each noise value occurs in `size` draws, with far values counted at the ends."""
    reach = _audited_reach(law)
    counts = np.zeros(2 * reach + 1, dtype=np.int64)
    for start in range(0, size, _DRAWS_PER_BLOCK):
        noise = law.sample(min(_DRAWS_PER_BLOCK, size - start), words)
        counts += np.bincount(np.clip(noise, -reach, reach) + reach, minlength=len(counts))
    return counts


def _audited_reach(law: Any) -> int:
    return int(min(law.reach(1e-12), _MAX_REACH_COUNTS)) + 2


def claimed_epsilon(law: Any, delta: float) -> float:
    """Return the epsilon at `delta` that the law's masses imply when one count changes by one."""
    # The ratio of the masses of X and X + 1 falls in k, so the best tests are the events X <= k, and
    # epsilon(delta) is the largest log((F(k) - delta) / F(k - 1)).
    k = np.arange(-int(min(law.reach(1e-300), 2 * _MAX_REACH_COUNTS)) - 1, 1.0)
    above, below = law.cdf(k) - delta * (1 + 1e-12), law.cdf(k - 1)
    with np.errstate(divide="ignore"):
        ratios = np.log(above[above > 0]) - np.log(below[above > 0])
    return max(0.0, float(ratios.max(initial=0.0)))


def epsilon_at_least(law: Any, halves: list[Integers], delta: float, confidence: float) -> float:
    """Return a lower confidence bound on epsilon at `delta`, by Clopper-Pearson limits on fixed events."""
    from scipy.special import betaincinv

    size = int(halves[0].sum())
    ends = _events(law, size)
    # Both tails, one bound each for either half: 4 statements for an event, all true at this confidence.
    miss = (1 - confidence) / (4 * len(ends))
    middle = len(halves[0]) // 2
    best = 0.0
    for one, other in (halves, [half[::-1] for half in halves]):
        inside = np.cumsum(one)[middle + ends]  # M(x) <= k
        moved = np.cumsum(other)[middle + ends - 1]  # M(x + 1) <= k
        low = np.where(inside > 0, betaincinv(np.maximum(inside, 1), size - inside + 1, miss), 0.0)
        high = np.where(moved < size, betaincinv(moved + 1, np.maximum(size - moved, 1), 1 - miss), 1.0)
        best = max(best, float(np.max(np.log(np.maximum(low - delta, 1e-300)) - np.log(high))))
    return best


def _events(law: Any, size: int) -> Integers:
    """Return at most 64 thresholds k of events `X <= k`, chosen before any draw."""
    k = np.arange(2 - _audited_reach(law), 1)
    frequent = k[law.cdf(k - 1) * size > 100]
    chosen = frequent if len(frequent) else k[-1:]
    return chosen[np.unique(np.linspace(0, len(chosen) - 1, _MAX_EVENTS).astype(np.int64))]


def log_ratios(law: Any, counts: Integers) -> tuple[LogRatio, ...]:
    """Compare log ratios of frequencies with the law, at values expected 1,000 times or more."""
    reach = len(counts) // 2
    k = np.arange(1 - reach, reach)
    wanted, seen = counts.sum() * law.pmf(k), counts[1:-1]
    both = np.flatnonzero((wanted[:-1] >= 1000) & (wanted[1:] >= 1000))
    exact = law.logpmf(k[both]) - law.logpmf(k[both + 1])
    measured = np.log(np.maximum(seen[both], 0.5)) - np.log(np.maximum(seen[both + 1], 0.5))
    error = np.sqrt(1 / wanted[both] + 1 / wanted[both + 1])
    rows: list[Reals] = [k[both].astype(float), measured, exact, error]
    return tuple(LogRatio(int(row[0]), *row[1:]) for row in np.stack(rows, axis=1).tolist())


def _deviation_p(ratios: tuple[LogRatio, ...]) -> float:
    from scipy.special import ndtr

    furthest = max((abs(r.measured - r.exact) / r.error for r in ratios), default=0.0)
    return min(1.0, float(2 * len(ratios) * ndtr(-furthest))) if ratios else 1.0
