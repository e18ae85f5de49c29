"""Exact samplers of laws on the integers, which read more random bits where a draw is undecided.

Let `U` be an infinite string of random bits, read as a number in [0, 1), and `F` the law's cdf.
Then `X = min {k : F(k) > U}` has exactly that law. Only as many bits of `U` are drawn as decide `X`:

1. the first `lookup_bits` index a table that holds the answer if no `F(k)` falls in that cell;
2. else `U` is extended to `word_bits`, and `X` is found among the floors of `F(k) 2^word_bits`;
3. if those bits equal such a floor, `word_bits` more are drawn, and the comparison is made again
   with `F` enclosed that much finer, for any `k`: nothing is truncated.

What is decided is decided on enclosures of real numbers between two integers over a power of two, `lo <= x 2^bits <= hi` with
Python integers: a comparison that comes out is proven, and one that does not is repeated with more bits. No floating point is
involved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from trueup.errors import PrivacyError
from trueup.noise.law import Integers, Words

Decision = TypeVar("Decision")


class Interval:
    """Bounds on a real number `x >= 0`: `lo <= x 2^bits <= hi`.

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
        """Return an enclosure of the integer `value` that has no error."""
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
        """Return an enclosure of the same number to fewer bits."""
        drop = self.bits - bits
        return Interval(self.lo >> drop, -(-self.hi >> drop), bits)

    def floor(self, bits: int) -> int | None:
        """Return `floor(x 2^bits)` for `x < 1`, or None if the bounds differ."""
        # An x with x 2^bits < cell + 1 has the floor `cell`, and hi may touch cell + 1 where x cannot. (A cdf
        # of the laws here is transcendental; were it ever equal, a sampler would still be exact, since it
        # looks further whenever its bits equal a stored floor and decides alike for both.)
        drop = self.bits - bits
        cell = self.lo >> drop
        return cell if self.hi <= (cell + 1) << drop else None


@lru_cache(maxsize=256)
def exp_neg(x: Fraction, bits: int) -> Interval:
    """Return an enclosure of `exp(-x)` for a rational `x >= 0`."""
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
    """Return an enclosure of `exp(-y)` for `0 <= y < 1/100`, by its alternating series."""
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
    """Enclosures of the powers `exp(-rate j)` for j = 0, 1, ..., cached at several precisions."""

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
    """Return the first result of `attempt(bits)` that is not None, while doubling the number of bits."""
    while (decision := attempt(bits)) is None:
        bits *= 2
    return decision


Enclose = Callable[[int, int], Interval]
"""`enclose(k, bits)`: the cdf at `k`, to about `bits` bits; 0 below the support and 1 above."""

CHUNK = 1 << 16
UNDECIDED = np.iinfo(np.int16).min
_BROKEN = 1024
"""Bits after which a draw is undecided once in more than 10^290 draws, or the source is stuck."""


def chunks(size: int) -> Iterator[slice]:
    """Yield slices of `size` draws that are small enough for the processor's cache."""
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))


def fetch(words: Words, count: int) -> bytes:
    """Return `count` random bytes from a source, or raise an error if it gives fewer."""
    fetched = words(count)
    if len(fetched) != count:
        raise PrivacyError(f"the source of randomness gave {len(fetched)} bytes", needed=f"{count} bytes")
    return fetched


class Inversion:
    """Sampler of one law on the integers, by inversion of its distribution function.

    Parameters
    ----------
    enclose
        The law's cdf; between 0 and 1 it takes irrational values.
    support
        The `k` whose `F(k)` is stored, in order, within +-32,000. Outside them the cdf must be 0 or 1, or
        closer to 0 and 1 than `2^-word_bits`.
    lookup_bits, word_bits
        Sizes of the first table's index and of the thresholds; at most 32 and 64.
    """

    def __init__(
        self, enclose: Enclose, support: range, *, lookup_bits: int = 16, word_bits: int = 64
    ) -> None:
        self.enclose, self.support = enclose, support
        self.lookup_bits, self.word_bits = lookup_bits, word_bits
        self.step = -(-word_bits // 8)

    @cached_property
    def thresholds(self) -> np.ndarray:
        """Return `floor(F(k) 2^word_bits)` for each k of the support, as proved uint64 numbers."""
        floors = decided(lambda bits: _all(self._floor(k, bits) for k in self.support), self.word_bits + 64)
        return np.array(floors, dtype=np.uint64)

    def _floor(self, k: int, bits: int) -> int | None:
        return self.enclose(k, bits).floor(self.word_bits)

    @cached_property
    def lookup(self) -> np.ndarray:
        """Return the draw for each possible first word, or the smallest int16 where it is undecided."""
        cells = (self.thresholds >> np.uint64(self.word_bits - self.lookup_bits)).astype(np.int64)
        inside = np.bincount(cells, minlength=1 << self.lookup_bits)
        before = np.cumsum(inside) - inside
        return np.where(inside > 0, UNDECIDED, self.support.start + before).astype(np.int16)

    def first_words(self, count: int, words: Words) -> np.ndarray:
        """Return `count` random first words of `lookup_bits` bits."""
        dtype = np.dtype(np.uint16 if self.lookup_bits <= 16 else np.uint32)
        first = np.frombuffer(words(dtype.itemsize * count), dtype, count)
        surplus = 8 * dtype.itemsize - self.lookup_bits
        return first >> dtype.type(surplus) if surplus else first

    def draw(self, words: Words) -> int:
        """Return one draw from the law."""
        size = 2 if self.lookup_bits <= 16 else 4
        first = int.from_bytes(fetch(words, size), "little") >> (8 * size - self.lookup_bits)
        value = self.lookup.item(first)
        return value if value != UNDECIDED else int(self._extend(np.array([first]), words)[0])

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` independent draws from the law."""
        out = np.empty(size, dtype=np.int64)
        for chunk in chunks(size):
            out[chunk] = self.chunk(chunk.stop - chunk.start, words)
        return out

    def chunk(self, count: int, words: Words) -> np.ndarray:
        """Return `count` independent draws that are made together."""
        first = self.first_words(count, words)
        values = self.lookup.take(first)
        open_ = np.flatnonzero(values == UNDECIDED)
        if not len(open_):
            return values
        settled = self._extend(first[open_], words)
        if np.abs(settled).max() > -(UNDECIDED + 1):
            values = values.astype(np.int64)
        values[open_] = settled
        return values

    def _extend(self, first: np.ndarray, words: Words) -> Integers:
        """Return the draws of undecided first words after reading further bits, up to `word_bits`."""
        more = self.word_bits - self.lookup_bits
        fresh = np.frombuffer(words(8 * len(first)), np.uint64, len(first)) >> np.uint64(64 - more)
        u = (first.astype(np.uint64) << np.uint64(more)) | fresh
        j = np.searchsorted(self.thresholds, u)
        values = j + self.support.start
        hit = self.thresholds[np.minimum(j, len(self.thresholds) - 1)] == u
        for i in np.flatnonzero(hit):
            values[i] = self.refine(int(u[i]), words)
        return values

    def refine(self, u: int, words: Words) -> int:
        """Return the draw for bits `u` that equal a threshold, after reading bits until the cdf decides."""
        bits = self.word_bits
        while bits < _BROKEN:
            u = u << 8 * self.step | int.from_bytes(fetch(words, self.step), "big")
            bits += 8 * self.step
            value = self._search(u, bits)
            if value is not None:
                return value
        raise PrivacyError(
            f"{bits} random bits did not decide a draw, so that the source of randomness does not work",
            needed="a source of independent random bytes",
        )

    def _search(self, u: int, bits: int) -> int | None:
        """Return `min {k : F(k) > U}` for a `U` that begins with the bits `u`, or None if undecided."""
        low, high, reach = self.support.start - 1, self.support.stop, 1
        while (above := self._above(low, u, bits)) is not False:
            if above is None:
                return None
            low, reach = low - reach, 2 * reach
        while (above := self._above(high, u, bits)) is not True:
            if above is None:
                return None
            high, reach = high + reach, 2 * reach
        while high - low > 1:
            middle = (low + high) // 2
            above = self._above(middle, u, bits)
            if above is None:
                return None
            low, high = (low, middle) if above else (middle, high)
        return high

    def _above(self, k: int, u: int, bits: int) -> bool | None:
        """Return True if `F(k) > U` for a `U` that begins with the bits `u`, or None if undecided."""
        cdf = self.enclose(k, bits + 64)
        spare = cdf.bits - bits
        if cdf.lo >= (u + 1) << spare:
            return True
        return False if cdf.hi <= u << spare else None


def _all(values: Iterable[int | None]) -> list[int] | None:
    """Return the values as a list, or None if one of them is None."""
    result = []
    for value in values:
        if value is None:
            return None
        result.append(value)
    return result
