"""Exact samplers of the two-sided geometric law, on all integers and truncated to a range.

Let `q = exp(-epsilon)`, `S ~ Bernoulli(q / (1 + q))` and `G` geometric, `P(G = g) = (1 - q) q^g`.
Then `X = G` if `S = 0` and `X = -1 - G` if `S = 1` has `P(X = x)` proportional to `q^|x|`.
The digits of `G` in a base `m` are independent, since `q^(m h + l) = (q^m)^h q^l`: the last is a geometric
variable of ratio `q` truncated to `[0, m)`, and what is left is geometric of ratio `q^m`. So a wide law
needs small tables only, no rejection and no truncation. The sign shares the first digit's table.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from trueup.noise.law import Integers, Words
from trueup.noise.samplers import Interval, Inversion, Powers, chunks, exp_neg

_ONE_TABLE = 48
_LOW_BITS = 8


class TwoSidedGeometric:
    """Sampler of `P(X = x)` proportional to `exp(-epsilon |x|)` on all integers.

    Parameters
    ----------
    epsilon
        Any positive rational.
    digits
        Bits of each low digit, the last first; chosen from the width if None.
    """

    def __init__(
        self, epsilon: Fraction, digits: tuple[int, ...] | None = None, *, word_bits: int = 64
    ) -> None:
        self.epsilon = epsilon
        self.low_bits = _digits_for(epsilon) if digits is None else digits
        lookup_bits = min(16, word_bits - 1)
        shifts = [sum(self.low_bits[:i]) for i in range(len(self.low_bits) + 1)]
        first = FirstDigit(epsilon, epsilon * 2 ** shifts[-1])
        self.first = Inversion(
            first.cdf, first.support(word_bits), lookup_bits=lookup_bits, word_bits=word_bits
        )
        self.low = [
            Inversion(LowDigit(epsilon * 2**shift, 1 << bits).cdf, range((1 << bits) - 1),
                      lookup_bits=lookup_bits, word_bits=word_bits)
            for bits, shift in zip(self.low_bits, shifts)
        ]  # fmt: skip

    def draw(self, words: Words) -> int:
        """Return one draw from the law."""
        value = self.first.draw(words)
        sign = -(value < 0)
        for table, bits in self._leading_first():
            value = value << bits | (table.draw(words) ^ (sign & ((1 << bits) - 1)))
        return value

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` independent draws from the law."""
        out = np.empty(size, dtype=np.int64)
        for chunk in chunks(size):
            self._fill(out[chunk], words)
        return out

    def _fill(self, out: Integers, words: Words) -> None:
        first = self.first.chunk(len(out), words)
        sign = -(first < 0).astype(np.int16)
        out[:] = first
        for table, bits in self._leading_first():
            # -1 - (m h + l) = m (-1 - h) + (m - 1 - l): where S = 1, a digit's bits are flipped.
            digit = table.chunk(len(out), words) ^ (sign & np.int16((1 << bits) - 1))
            out <<= bits
            out |= digit

    def _leading_first(self):
        return zip(reversed(self.low), reversed(self.low_bits))


def _digits_for(epsilon: Fraction) -> tuple[int, ...]:
    """Return the number of bits of each low digit of a draw."""
    scale = int(1 / epsilon)
    if scale <= _ONE_TABLE:
        return ()
    bits = scale.bit_length() - 4
    count = -(-bits // _LOW_BITS)
    return tuple(bits // count + (i < bits % count) for i in range(count))


@lru_cache(maxsize=64)
def two_sided_geometric(epsilon: Fraction) -> TwoSidedGeometric:
    """Return the exact sampler for `epsilon`, whose tables stay in memory."""
    return TwoSidedGeometric(epsilon)


class FirstDigit:
    """Law of the sign and the first digit of a two-sided geometric variable."""

    def __init__(self, epsilon: Fraction, leading: Fraction) -> None:
        self.epsilon, self.leading = epsilon, leading
        self._powers = Powers(leading)

    def support(self, word_bits: int) -> range:
        """Return the tabulated range of `k`: cdfs within `2^-word_bits` of 0 and 1 are left out."""
        reach = int(word_bits / self.leading) + 2  # exp(-leading reach) < 2^-word_bits
        return range(-reach, reach)

    def cdf(self, k: int, bits: int) -> Interval:
        # P(Y <= -1 - h) = q/(1+q) P(H >= h); P(Y > k) = 1/(1+q) P(H >= k + 1).
        bits += 32
        one, q = Interval.exact(1, bits), exp_neg(self.epsilon, bits)
        if k < 0:
            return self._powers(-k - 1, bits) * (q / (one + q))
        return one - self._powers(k + 1, bits) / (one + q)


class LowDigit:
    """Law of a low digit: a truncated geometric variable on `[0, base)` with ratio `exp(-rate)`."""

    def __init__(self, rate: Fraction, base: int) -> None:
        self.base = base
        # 1 - exp(-rate base) loses this many leading bits when the rate is small.
        self._guard = 32 + 2 * int(1 / rate).bit_length()
        self._powers = Powers(rate)

    def cdf(self, k: int, bits: int) -> Interval:
        bits += self._guard
        if k < 0 or k >= self.base - 1:
            return Interval.exact(int(k >= 0), bits)
        one = Interval.exact(1, bits)
        return (one - self._powers(k + 1, bits)) / (one - self._powers(self.base, bits))


class GeometricTail:
    """Enclosures of the cdf of the two-sided geometric law truncated to `-bound .. bound`."""

    def __init__(self, epsilon: Fraction, bound: int) -> None:
        self.bound = bound
        self._guard = 32 + 2 * int(1 / epsilon).bit_length()  # the differences cancel when epsilon is small
        self._powers = Powers(epsilon)

    def cdf(self, k: int, bits: int) -> Interval:
        """Return an enclosure of `P(X <= k)`."""
        bits += self._guard
        one = Interval.exact(1, bits)
        if not -self.bound <= k < self.bound:
            return one if k >= self.bound else one - one
        beyond = self._powers(self.bound + 1, bits)
        tail = (self._powers(-k if k < 0 else k + 1, bits) - beyond) / (
            one + self._powers(1, bits) - beyond - beyond
        )
        return tail if k < 0 else one - tail


@lru_cache(maxsize=64)
def geometric_within(epsilon: Fraction, bound: int, word_bits: int = 64) -> Inversion:
    """Return the exact sampler of the truncated two-sided geometric law, from a cache."""
    reach = min(bound, int(word_bits / epsilon) + 2)
    lookup_bits = 16 if min(bound, 8 / epsilon) <= 512 else 20
    return Inversion(
        GeometricTail(epsilon, bound).cdf, range(-reach, reach), lookup_bits=lookup_bits, word_bits=word_bits
    )
