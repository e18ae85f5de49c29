"""Proved tables for drawing grids of noise row by row.

**Limits.** `r_k(R)`, the probability that independent cells with laws `p_k(. | R_j)` sum to zero, is at most the probability
that they sum to a multiple of N, which is the mean over N angles of a product of the laws' Fourier transforms. So

    r_k(R)  <=  mean over t of (sup over R of |phi_{k,R}(t)|)^columns.

It is enough to look at |R| below some R': a sum of k cells is a difference of two uniform compositions, of n and n - R, so that
`p_k(. | R)` is no higher anywhere than the law of the first cell of a composition of |R| at its highest. (Given n, what the
second composition adds only spreads it; and one more unit is a step of an urn, `P_{n+1}(a) = P_n(a) (1 - (q + a) / (qk + n))
+ P_n(a - 1) (q + a - 1) / (qk + n)`, at most `max P_n`.) That bounds r_k, too: where it is below the limit the limit holds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from trueup.kernel.lattice_samplers.rows import ACCEPT, RowLaw
from trueup.noise.lattice.choice import NOISE_REACH_NATS, too_long
from trueup.noise.lattice.tables import Aggregate, Decisions, flip, laplace_steps
from trueup.noise.law import Reals, Words
from trueup.noise.samplers import Interval, exp_neg

LARGEST_GRID, LONGEST = 2**14, 60.0
"""Most cells, and seconds that setting up may take."""
MARGIN = 1e-9
"""Added to every limit: the doubles that it is computed in are right to 1e-11."""


class GridSampler:
    """Stages of the sampler of a grid, with exact decisions where the tables leave a word undecided.

    Parameters
    ----------
    shape
        Places of each axis, two axes or more.
    epsilon
        Inverse scale of a cell.
    bits
        Bits of a word that are compared at first; see `Decisions`.
    """

    def __init__(self, shape: Sequence[int], epsilon: Fraction, bits: int = 64) -> None:
        self._decisions = Decisions(bits)
        self._stages = [Stage(*each, epsilon, self._decisions) for each in row_stages(shape)]
        self.laws = tuple(stage.law for stage in self._stages)
        self.asked = np.zeros(self.laws[-1].columns, np.int64)

    def settle(self, family: int, row: int, k: int, word: int, words: Words) -> int:
        """Return the outcome of one undecided draw, settled in exact whole-number arithmetic."""
        if family != ACCEPT:
            return self._decisions.settle(family, row, k, word, words)
        stage = self._stages[row]
        left = self.asked[: stage.law.columns].tolist()
        return flip(lambda bits: stage.chance(k, left, bits), word, words)


def row_stages(shape: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return, for each stage of a grid, the numbers of rows, columns and summands of a cell.

    Examples
    --------
    >>> row_stages((4, 5)), row_stages((8, 8, 8))
    ([(4, 5, 1)], [(8, 8, 8), (8, 64, 1)])
    """
    rows = [(shape[0], shape[1]), *((shape[i], math.prod(shape[:i])) for i in range(2, len(shape)))]
    return [(*each, math.prod(shape[i + 2 :])) for i, each in enumerate(rows)]


class Stage:
    """The tables for one stage of the sampler of a grid.

    Parameters
    ----------
    rows, columns, summands
        The numbers that `row_stages` gives for the stage.
    epsilon
        Inverse scale of one summand.
    decisions
        The object in which coins and cdfs are registered.
    """

    def __init__(
        self, rows: int, columns: int, summands: int, epsilon: Fraction, decisions: Decisions
    ) -> None:
        self.epsilon, self._sizes = epsilon, [summands * k for k in range(1, rows + 1)]
        self._sums = [lru_cache(maxsize=None)(Aggregate(epsilon, size).sum) for size in self._sizes]
        coins = decisions.coins(self._sums)
        weights = [[_nearest(chance(s, 128)) for s in range(coins.floors.shape[1])] for chance in self._sums]
        norms = [1.0, *(_nearest(self._norm(k, 128)) for k in range(2, rows + 1))]
        rate = float(epsilon)
        limits = [1.0, *(limit(k, columns, rate, summands) for k in range(2, rows + 1))]
        spread = math.ceil(4.5 * math.sqrt(columns * summands * _variance(rate)))
        self.law = RowLaw(
            rows, columns, laplace_steps(decisions, [epsilon]), summands, coins,
            np.array(weights), np.array(norms), np.array(limits), row_reach(rate, summands * rows, 52), spread,
        )  # fmt: skip

    def chance(self, k: int, left: Sequence[int], bits: int) -> Interval:
        """Return an enclosure of the acceptance probability `r_k(left) / M_k`."""
        work = bits + 64
        total, zero = [1 << work], 0
        for lack in left:
            masses = self._masses(k, abs(lack), work)
            below = row_reach(float(self.epsilon), self._sizes[k - 1], work)
            total = _product(total, masses[:: 1 if lack >= 0 else -1], work)
            zero += below + max(0, -lack)
        met, missing = total[zero], (1 << work) - sum(total)
        most = Fraction(float(self.law.limits[k - 1]))
        high = -(-(met + missing) * most.denominator // most.numerator)
        return Interval(met * most.denominator // most.numerator, min(high, 1 << work), work)

    def _masses(self, k: int, lack: int, work: int) -> list[int]:
        """Return lower bounds on the masses `p_k(v | left) 2^work`."""
        deep = 2 * work + math.ceil(3 * lack * self.epsilon)
        far = row_reach(float(self.epsilon), self._sizes[k - 1], work)
        whole = (self._sums[k - 1](lack, deep).rounded(deep) * self._norm(k, deep)).hi
        cell, rest = self._sums[0], self._sums[k - 2]
        pairs = ((cell(abs(v), deep), rest(abs(lack - v), deep)) for v in range(-far, lack + far + 1))
        return [
            (one.rounded(deep).lo * other.rounded(deep).lo << work) // (whole << deep) for one, other in pairs
        ]

    def _norm(self, k: int, bits: int) -> Interval:
        """Return an enclosure of `g_{qk}(0) / (g_q(0) g_{q(k-1)}(0))`."""
        work = bits + 64
        one, rest, whole = (
            centre(self.epsilon, self._sizes[i], work).rounded(work) for i in (0, k - 2, k - 1)
        )
        return (whole / (one * rest)).rounded(bits)


def centre(epsilon: Fraction, m: int, bits: int) -> Interval:
    """Return an enclosure of the weight of sum zero, `g_m(0) = sum_j C(m-1, j)^2 x^j / (1 - x)^(m-1)`, `x = exp(-2 epsilon)`."""
    bits += 64 + m * max(4, 2 - math.floor(math.log2(-math.expm1(-2 * float(epsilon)))))
    x, power, one = exp_neg(2 * epsilon, bits), Interval.exact(1, bits), Interval.exact(1, bits)
    total, below = Interval(0, 0, bits), one
    for j in range(m):
        ways = math.comb(m - 1, j) ** 2
        total += Interval(power.lo * ways, power.hi * ways, bits)
        power = power * x
        below = below * (one - x) if j else below
    return total / below


def row_reach(epsilon: float, m: int, bits: int) -> int:
    """Return how far beyond a column's remaining sum the law of its cells is tabulated."""
    return math.ceil((bits * math.log(2) / 2 + 2 * math.log(m + 1)) / epsilon) + 2 * m


def _nearest(found: Interval) -> float:
    return found.lo / (1 << found.bits)


def _product(one: list[int], other: list[int], bits: int) -> list[int]:
    """Return the product of two polynomials of masses times 2^bits, rounded down."""
    width = bits // 4 + 2  # bytes of a sum of products below 1
    packed = [
        int.from_bytes(b"".join(c.to_bytes(width, "little") for c in p), "little") for p in (one, other)
    ]
    size = len(one) + len(other) - 1
    whole = (packed[0] * packed[1]).to_bytes(width * size + 1, "little")
    return [int.from_bytes(whole[width * i : width * (i + 1)], "little") >> bits for i in range(size)]


# --- limits -----------------------------------------------------------------------------------


def limit(k: int, columns: int, epsilon: float, summands: int = 1, *, proven: bool = True) -> float:
    """Return an upper bound on `r_k(R)` for every R, or the value at R = 0 if no bound is proved."""
    n = 1 << math.ceil(math.log2(64 + 12 * math.sqrt(columns * summands * _variance(epsilon))))
    weights = np.full(n // 2 + 1, 2.0 / n)
    weights[[0, -1]] = 1.0 / n
    largest = _transform(k, 0, epsilon, summands, n)
    if proven:
        for lack in range(1, _enough(k, summands, float(weights @ largest**columns))):
            np.maximum(largest, _transform(k, lack, epsilon, summands, n), out=largest)
    return float(weights @ largest**columns) + MARGIN


def _transform(k: int, lack: int, epsilon: float, summands: int, n: int) -> Reals:
    """Return the absolute values of the Fourier transform of `p_k(. | left)` at n angles."""
    far = row_reach(epsilon, summands * k, 52)
    v = np.arange(-far, lack + far + 1)
    size = lack + far + 1
    log = _log_weights(summands, epsilon, size)[np.abs(v)] - epsilon * (np.abs(v) + np.abs(lack - v) - lack)
    log += _log_weights(summands * (k - 1), epsilon, size)[np.abs(lack - v)]
    mass = np.exp(log - log.max())
    return np.abs(np.fft.rfft(np.bincount(v % n, mass / mass.sum(), n)))


def _log_weights(m: int, epsilon: float, size: int) -> Reals:
    """Return the logs of `g_m(s) exp(epsilon s)` up to a constant, for s from 0 to at least `size`."""
    return _tabulated(m, epsilon, 1 << size.bit_length())


@lru_cache(maxsize=256)
def _tabulated(m: int, epsilon: float, size: int) -> Reals:
    s, i, x = np.arange(size)[:, None], np.arange(m), math.exp(-2 * epsilon)
    ways = gammaln(m) - gammaln(i + 1) - gammaln(m - i) + gammaln(m + i)
    ways += (m - 1 - i) * math.log1p(-x) - 2 * epsilon * i
    logs: Any = logsumexp(ways + gammaln(m + s) - gammaln(s + i + 1), axis=1)
    return logs


def _enough(k: int, summands: int, least: float) -> int:
    """Return the smallest |R| from which on every mass of the laws `p_k(. | R)` is at most `least`."""
    high = next(n for n in (1 << i for i in count()) if _highest(n, k, summands) <= least)
    return bisect_left(range(high), -least, key=lambda n: -_highest(n, k, summands))


def _highest(n: int, k: int, q: int) -> float:
    """Return the largest mass of a sum of q cells, if n is composed uniformly of qk parts."""
    a, others = np.arange(n + 1), q * (k - 1)
    ways = gammaln(a + q) - gammaln(a + 1) + gammaln(n - a + others) - gammaln(n - a + 1)
    whole = gammaln(n + q + others) - gammaln(n + 1) - gammaln(q + others)
    return float(np.exp(ways.max() - gammaln(q) - gammaln(others) - whole))


def _variance(epsilon: float) -> float:
    return 2 * math.exp(-epsilon) / math.expm1(-epsilon) ** 2


def log_proposals(shape: Sequence[int], epsilon: float) -> float:
    """Return an estimate of the log total weight of a grid's proposals."""
    total = shape[1] * _log_centre(math.prod(shape) // shape[1], epsilon)
    for rows, columns, summands in row_stages(shape):
        total += sum(math.log(limit(k, columns, epsilon, summands, proven=False)) for k in range(2, rows + 1))
    return total


def _log_centre(m: int, epsilon: float) -> float:
    """Return the log of the total weight of m cells that sum to zero."""
    j = np.arange(m)
    ways = 2 * (gammaln(m) - gammaln(j + 1) - gammaln(m - j)) - 2 * epsilon * j
    whole: Any = logsumexp(ways)
    return float(whole) - (m - 1) * math.log(-math.expm1(-2 * epsilon))


def seconds_for(shape: Sequence[int], epsilon: float) -> float:
    """Return an estimate of the seconds that one proposal takes."""
    total = 0.0
    for rows, columns, summands in row_stages(shape):
        spread = math.sqrt(columns * summands * _variance(epsilon))
        cells = columns * (summands + 1) * spread / math.sqrt(columns)
        total += rows * (
            8e-8 * cells + 4e-10 * columns * row_reach(epsilon, summands, 13) * (20 + 6 * spread)
        )
    return total


def beyond_limits(shape: Sequence[int], epsilon: float) -> str:
    """Return words for the limit that the tables of a grid exceed, or an empty text."""
    if beyond := too_long(1.5 * NOISE_REACH_NATS / epsilon):
        return beyond
    if math.prod(shape) > LARGEST_GRID:
        return f"a grid of {math.prod(shape):,} cells, at most {LARGEST_GRID:,}"
    seconds = sum(_set_up(*stage, epsilon) for stage in row_stages(shape))
    return f"a set-up of about {seconds:.3g} s, at most {LONGEST:g}" if seconds > LONGEST else ""


def _set_up(rows: int, columns: int, summands: int, epsilon: float) -> float:
    """Return an estimate of the seconds that computing the tables of a stage takes."""
    k = np.arange(2, rows + 1)
    weights = (summands * (k + summands * k**2 / 500)).sum() * 45 / epsilon
    lacks = 2.5 * k * math.sqrt(columns * summands * _variance(epsilon))
    return float(5e-6 * weights + (lacks * (4e-5 + 1.2e-8 * (lacks + 40 / epsilon))).sum())
