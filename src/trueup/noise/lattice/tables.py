"""Proved tables for the exact lattice samplers: laws on the integers, and families of biased coins.

Each entry is the floor of a probability times `2^bits`, decided on enclosures; a word that equals it is
settled with more bits by the same refinement as every other law's (`inversion`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from trueup.kernel.lattice_samplers import Coins, Steps
from trueup.kernel.lattice_samplers.free import Aggregates
from trueup.noise.law import Words
from trueup.noise.samplers import Enclose, Interval, Inversion, Powers, decided, exp_neg
from trueup.noise.samplers.gaussian import GaussianTable
from trueup.noise.samplers.geometric import FirstDigit

Chance = Callable[[int, int], Interval]
"""`chance(k, bits)`: the success probability of coin k, to about `bits` bits."""


class Decisions:
    """Tables of several families of laws or coins, with exact decisions for undecided words.

    Parameters
    ----------
    bits
        Bits of a word that are compared at first, 11 to 64; fewer than 64 only to test the rest.
    """

    def __init__(self, bits: int = 64) -> None:
        self.bits = bits
        self._families: list[list[Chance] | list[Inversion]] = []

    def steps(self, laws: Sequence[tuple[Enclose, range]]) -> Steps:
        """Return the tables of laws on given supports, computed from enclosures of their cdfs."""
        inversions = [Inversion(cdf, support, lookup_bits=8, word_bits=self.bits) for cdf, support in laws]
        self._families.append(inversions)
        tables = [(law.support.start, law.thresholds) for law in inversions]
        return Steps.of(len(self._families) - 1, tables, self.bits)

    def coins(self, chances: Sequence[Chance], *, peaks: Sequence[int] | None = None) -> Coins:
        """Return tables of families of coins, until probabilities are below `2^-bits`.

        Chances fall from coin 0 on, or from the coins `peaks` on.
        """
        self._families.append(list(chances))
        rows = [self._floors(chance, peak) for chance, peak in zip(chances, peaks or [0] * len(chances))]
        width = max(map(len, rows))
        stack = np.array([np.pad(row, (0, width - len(row))) for row in rows])
        return Coins(stack, len(self._families) - 1, 64 - self.bits)

    def _floors(self, chance: Chance, peak: int) -> np.ndarray:
        floors = [0]
        while len(floors) <= peak + 1 or floors[-1] > 0:
            k = len(floors)
            floors.append(decided(lambda bits, k=k: chance(k, bits).floor(self.bits), self.bits + 64))
        return np.array(floors, dtype=np.uint64)

    def settle(self, family: int, row: int, k: int, word: int, words: Words) -> int:
        """Return the outcome of one undecided draw: its value, or 1 for a coin's success."""
        law, word = self._families[family][row], word >> (64 - self.bits)
        if isinstance(law, Inversion):
            return law.refine(word, words)
        return flip(lambda bits: law(k, bits), word, words, self.bits)


def flip(chance: Callable[[int], Interval], word: int, words: Words, word_bits: int = 64) -> int:
    """Return 1 if a uniform number that begins with `word` lies below a probability, else 0."""
    cdf = lambda value, bits: chance(bits) if value == 0 else Interval.exact(int(value > 0), bits)  # noqa: E731
    return int(Inversion(cdf, range(1), lookup_bits=8, word_bits=word_bits).refine(word, words) == 0)


class HalfNorm:
    """The law of K for one fixed sum of n cells: `P(K = k) ~ C(n+k-1, k)^2 x^k`, `x = exp(-2 epsilon)`.

    Its weights are unimodal with ratios `w(k+1) / w(k) = ((n+k) / (k+1))^2 x` that fall in k, so what lies beyond
    a window is at most its last weight times a geometric series.
    """

    def __init__(self, n: int, epsilon: Fraction) -> None:
        self.n, self.epsilon = n, epsilon
        rate = float(epsilon)
        self.mode = int((n - 1) / np.expm1(rate))
        self._table = lru_cache(maxsize=4)(self._tabulate)

    @property
    def support(self) -> range:
        """Return the tabulated range of k: cdfs from `2^-64` to `1 - 2^-64`, with one more at each end."""
        start, below, above, total = self._table(128)
        first = bisect_left(above, total[0] >> 64)
        last = bisect_right(below, total[1] - (total[1] >> 64))
        return range(max(start + first - 2, 0), start + last + 1)

    def cdf(self, k: int, bits: int) -> Interval:
        """Return an enclosure of `P(K <= k)`."""
        start, below, above, total = self._table(bits)
        if k < 0:
            return Interval.exact(0, bits)
        i = k - start + 1
        lo = below[max(0, min(i, len(below) - 1))]
        hi = above[i] if 0 <= i < len(above) else (above[0] if i < 0 else total[1])
        # Rounded outward a cdf may exceed 1; it does not.
        return Interval((lo << bits) // total[1], min(-((-hi << bits) // total[0]), 1 << bits), bits)

    def _tabulate(self, bits: int):
        """Return the first k, bounds on the cumulative weights below each k, and the enclosed total weight."""
        work = bits + 64
        x = exp_neg(2 * self.epsilon, work)
        up, beyond = self._walk(Interval.exact(1, work), lambda k: (self.n + k, k + 1), x, 1)
        down, before = [Interval.exact(1, work)], 0
        if self.mode:  # else nothing lies below, and x may be too small to divide by
            down, before = self._walk(down[0], lambda k: (k, self.n + k - 1), down[0] / x, -1)
        weights = down[:0:-1] + up
        below, above = [0], [before]
        for weight in weights:
            below.append(below[-1] + weight.lo)
            above.append(above[-1] + weight.hi)
        return self.mode - len(down) + 1, below, above, (below[-1], above[-1] + beyond)

    def _walk(self, weight: Interval, ratio, factor: Interval, direction: int) -> tuple[list[Interval], int]:
        """Return the weights from the mode outwards until they are negligible, and a bound on the rest."""
        weights, k, work = [weight], self.mode, factor.bits
        while True:
            above, below = (part**2 for part in ratio(k))
            lo = weight.lo * factor.lo * above // below >> work
            hi = -((-weight.hi * factor.hi * above // below) >> work)
            weight, k = Interval(lo, hi, work), k + direction
            if hi == 0:
                return weights, 0
            if hi < 1 << 16 and hi < weights[-1].hi:
                last = weights[-1].hi
                return weights, -(-hi * last // (last - hi))
            weights.append(weight)


def sizes(decisions: Decisions, n: int, epsilon: Fraction) -> Steps:
    """Return the table of the law of K for one fixed sum of n cells."""
    law = HalfNorm(n, epsilon)
    return decisions.steps([(law.cdf, law.support)])


def laplace_steps(decisions: Decisions, epsilons: Sequence[Fraction]) -> Steps:
    """Return tables of discrete Laplace laws."""
    laws = [FirstDigit(epsilon, epsilon) for epsilon in epsilons]
    return decisions.steps([(law.cdf, law.support(decisions.bits)) for law in laws])


def gaussian_steps(decisions: Decisions, variances: Sequence[Fraction]) -> Steps:
    """Return tables of discrete Gaussian laws."""
    laws = [GaussianTable(variance, word_bits=decisions.bits) for variance in variances]
    return decisions.steps([(law.enclose, law.support) for law in laws])


def gaussian_coins(decisions: Decisions, variances: Sequence[Fraction]) -> Coins:
    """Return tables of the weights `exp(-k^2 / (2 sigma2))` of single cells, for each variance."""
    return decisions.coins(
        [lambda k, bits, v=variance: exp_neg(Fraction(k * k) / (2 * v), bits) for variance in variances]
    )


def laplace_aggregates(decisions: Decisions, kinds: Sequence[tuple[Fraction, int]]) -> Aggregates:
    """Return the tables of coins that accept and divide sums of m cells, for each `(epsilon, m)`."""
    aggregates = [Aggregate(epsilon, m) for epsilon, m in kinds]
    return Aggregates(
        decisions.coins([aggregate.sum for aggregate in aggregates]),
        decisions.steps([(aggregate.part, aggregate.reach(decisions.bits)) for aggregate in aggregates]),
        decisions.coins(
            [aggregate.head for aggregate in aggregates],
            peaks=[aggregate.mode + 1 for aggregate in aggregates],
        ),
    )


def gaussian_aggregates(decisions: Decisions, variances: Sequence[Fraction]) -> Aggregates:
    """Return the tables of Gaussian weights for free cells if every aggregate is a single cell."""
    coins = gaussian_coins(decisions, variances)
    return Aggregates(coins, gaussian_steps(decisions, variances), coins)


class Aggregate:
    """The weights of sums of m cells of discrete Laplace noise.

    `G_m(k) = a^k sum_j C(m-1+j+k, m-1) C(m-1+j, m-1) x^j` is a Gauss series; by Pfaff's transformation it is, up to a
    constant, `a^k sum_i C(m-1, i) (m+k-1)! (m+i-1)! / (k+i)! x^i (1-x)^(m-1-i)`, i below m: finite, and positive.
    """

    def __init__(self, epsilon: Fraction, m: int) -> None:
        self.epsilon, self.m, self._powers = epsilon, m, Powers(epsilon)
        self.mode = int((m - 1) * math.exp(-float(epsilon)) / -math.expm1(-float(epsilon)))

    def sum(self, k: int, bits: int) -> Interval:
        bits += 32 + 2 * self.m
        return self._powers(k, bits) * (self._series(k, bits) / self._series(0, bits))

    def _series(self, k: int, bits: int) -> Interval:
        m, x, one = self.m, self._powers(2, bits), Interval.exact(1, bits)
        ups, downs = [one], [one]
        for _ in range(m - 1):
            ups.append(ups[-1] * x)
            downs.append(downs[-1] * (one - x))
        total = Interval(0, 0, bits)
        for i in range(m):
            weight = math.comb(m - 1, i) * math.perm(m + k - 1, m - 1 - i) * math.perm(m + i - 1, i)
            total += _times(ups[i] * downs[m - 1 - i], weight, 1)
        return total

    def part(self, k: int, bits: int) -> Interval:
        if k < 0:
            return Interval.exact(0, bits)
        return Interval.exact(1, bits) - self._powers(k + 1, bits)

    def reach(self, bits: int) -> range:
        """Return the range of k that is tabulated: cdfs up to `1 - 2^-bits`, and one more."""
        return range(int(bits / self.epsilon) + 2)

    def head(self, k: int, bits: int) -> Interval:
        """Return an enclosure of the probability of the sum `k - 1`."""
        # At the mode the power is 1: a constant such as 63/64 would lie on a threshold and never be decided.
        value, bits = k - 1, bits + 32
        far = self._powers(abs(value - self.mode), bits)
        power = far if value >= self.mode else Interval.exact(1, bits) / far
        ways = [math.comb(self.m - 1 + end, self.m - 1) for end in (value, self.mode)]
        return _times(power, 98 * ways[0], 99 * ways[1])


def _times(x: Interval, numerator: int, denominator: int) -> Interval:
    return Interval(x.lo * numerator // denominator, -(-x.hi * numerator // denominator), x.bits)
