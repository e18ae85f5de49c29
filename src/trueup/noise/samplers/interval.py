"""Enclosures of real numbers between two integers over a power of two.

Everything a sampler decides, it decides on these: `lo <= x 2^bits <= hi` with Python integers,
so a comparison that comes out is proven and one that does not is repeated with more bits.
No floating point is involved.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

Decision = TypeVar("Decision")


class Interval:
    """A real number `x >= 0` with `lo <= x 2^bits <= hi`.

    Arithmetic rounds outward; both operands must have the same `bits`.

    Examples
    --------
    >>> half = exp_neg(Fraction(7, 10), 32)
    >>> half.lo / 2**32 < 0.4965853038 < half.hi / 2**32
    True
    """

    __slots__ = ("bits", "hi", "lo")

    def __init__(self, lo: int, hi: int, bits: int) -> None:
        self.lo, self.hi, self.bits = lo, hi, bits

    @classmethod
    def exact(cls, value: int, bits: int) -> Interval:
        """Return the integer `value`, enclosed without error."""
        return cls(value << bits, value << bits, bits)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lo + other.lo, self.hi + other.hi, self.bits)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(max(self.lo - other.hi, 0), self.hi - other.lo, self.bits)

    def __mul__(self, other: Interval) -> Interval:
        return Interval((self.lo * other.lo) >> self.bits, -((-self.hi * other.hi) >> self.bits), self.bits)

    def __truediv__(self, other: Interval) -> Interval:
        lo, hi = (self.lo << self.bits) // other.hi, -((-self.hi << self.bits) // other.lo)
        return Interval(lo, hi, self.bits)

    def rounded(self, bits: int) -> Interval:
        """Return the same number enclosed with fewer bits."""
        drop = self.bits - bits
        return Interval(self.lo >> drop, -(-self.hi >> drop), bits)

    def floor(self, bits: int) -> int | None:
        """Return `floor(x 2^bits)` for an `x < 1`, None if undecided; see below for multiples of `2^-bits`."""
        # An x with x 2^bits < cell + 1 has the floor `cell`, and hi may touch cell + 1 where x cannot. (A cdf
        # of the laws here is transcendental; were it ever equal, a sampler would still be exact, since it
        # looks further whenever its bits equal a stored floor and decides alike for both.)
        drop = self.bits - bits
        cell = self.lo >> drop
        return cell if self.hi <= (cell + 1) << drop else None


@lru_cache(maxsize=256)
def exp_neg(x: Fraction, bits: int) -> Interval:
    """Enclose `exp(-x)` for a rational `x >= 0`."""
    if x > bits:  # exp(-x) < 2^-bits
        return Interval(0, 1, bits)
    # exp(-x) = exp(-x / 2^halvings)^(2^halvings); each squaring doubles the relative error.
    halvings = (x.numerator // x.denominator).bit_length() + 8
    work = bits + halvings + 32
    small = (x.numerator << work) // (x.denominator << halvings)
    result = _alternating(Interval(small, small + 1, work))
    for _ in range(halvings):
        result = result * result
    return result.rounded(bits)


def _alternating(y: Interval) -> Interval:
    """Enclose `exp(-y)` for `0 <= y < 1/100` by its alternating series."""
    term = Interval.exact(1, y.bits)
    evens, odds, k = term, Interval(0, 0, y.bits), 0
    while term.hi > 1:
        k += 1
        term = term * y
        term = Interval(term.lo // k, -(-term.hi // k), y.bits)
        evens, odds = (evens, odds + term) if k % 2 else (evens + term, odds)
    # The terms fall, so what is left out is smaller than the last one.
    left_out = Interval(0, term.hi, y.bits)
    return evens + left_out - odds - left_out


class Powers:
    """Enclosures of `exp(-rate j)` for growing `j` and several precisions, each computed once."""

    def __init__(self, rate: Fraction) -> None:
        self.rate = rate
        self._known: dict[int, list[Interval]] = {}

    def __call__(self, j: int, bits: int) -> Interval:
        known = self._known.get(bits, [Interval.exact(1, bits)])
        if j >= len(known):
            # A new list, swapped in whole: threads share samplers, and must not append to one list in turns.
            known = [*known]
            ratio = exp_neg(self.rate, bits)
            # Twice as long each time, or copies would cost the square of the length.
            while len(known) <= max(j, 2 * len(self._known.get(bits, ()))):
                known.append(known[-1] * ratio)
            self._known[bits] = known
        return known[j]


def decided(attempt: Callable[[int], Decision | None], bits: int) -> Decision:
    """Return `attempt(bits)`, doubling `bits` until the attempt decides (is not None)."""
    while (decision := attempt(bits)) is None:
        bits *= 2
    return decision
