"""Exact samplers of the discrete Gaussian law: tables up to a standard deviation of 1,024, else rejection.

Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy", algorithm 3: with
`t = floor(sigma) + 1`, draw `Y` with mass proportional to `exp(-|y| / t)` and accept it with probability
`exp(-x)`, `x = (|Y| - sigma2/t)^2 / (2 sigma2)`; about three in four are accepted.

`U < exp(-x)` is decided by lazily refined bits of `U`, as in `inversion`: 32 bits and 64-bit integer
arithmetic with a proven margin first, and enclosures of the rational `x` inside the margin.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np

from trueup.noise.law import Integers, Words
from trueup.noise.samplers import CHUNK, Interval, Inversion, exp_neg, fetch
from trueup.noise.samplers.geometric import two_sided_geometric

_LONG_LOOKUP_VARIANCE = 2**14


class GaussianTable(Inversion):
    """Sampler of `P(X = k)` proportional to `exp(-k^2 / (2 sigma2))` by inversion.

    Parameters
    ----------
    sigma2
        Any positive rational up to about 2^20 (the table has about `19 sqrt(sigma2)` thresholds).
    lookup_bits, word_bits
        The bits of a first word and of a full word, see `Inversion`; by default 16 or 20, and 64.
    """

    def __init__(self, sigma2: Fraction, *, lookup_bits: int | None = None, word_bits: int = 64) -> None:
        self.sigma2 = sigma2
        self._tails: dict[int, list[Interval]] = {}
        # P(X >= k) <= exp(-k^2 / (2 sigma2)) < 2^-word_bits as soon as k^2 > 1.4 word_bits sigma2.
        reach = isqrt(int(7 * word_bits * sigma2 / 5)) + 1
        default = 20 if sigma2 > _LONG_LOOKUP_VARIANCE else 16
        super().__init__(
            self._cdf, range(-reach, reach), lookup_bits=lookup_bits or default, word_bits=word_bits
        )

    def _cdf(self, k: int, bits: int) -> Interval:
        bits += 64
        tails = self._tails.get(bits) or self._tails.setdefault(bits, upper_tails(self.sigma2, bits))
        if k < 0:
            return tails[min(-k, len(tails) - 1)]
        return Interval.exact(1, bits) - tails[min(k + 1, len(tails) - 1)]


def upper_tails(sigma2: Fraction, bits: int) -> list[Interval]:
    """Return enclosures of `P(X >= k)` for `k = 0, 1, ..`, of which the last holds for larger k too."""
    weights, beyond = _weights(sigma2, bits)
    sums = [beyond]
    for weight in reversed(weights):
        sums.append(sums[-1] + weight)
    sums.reverse()
    one = Interval.exact(1, bits)
    # The mass is symmetric: the whole is w_0 + 2 (w_1 + w_2 + ...), and w_0 = 1.
    scale = one / (one + sums[1] + sums[1])
    return [total * scale for total in sums]


def _weights(sigma2: Fraction, bits: int) -> tuple[list[Interval], Interval]:
    """Return enclosures of `w_k = exp(-k^2 / (2 sigma2))` until they vanish, and one of the sum of all others."""
    weight, weights = Interval.exact(1, bits), []
    # w_{k+1} = w_k r_k with r_k = exp(-(2k + 1) / (2 sigma2)) and r_{k+1} = r_k exp(-1 / sigma2).
    ratio, fall = exp_neg(1 / (2 * sigma2), bits), exp_neg(1 / sigma2, bits)
    while weight.lo > 0:
        weights.append(weight)
        weight, ratio = weight * ratio, ratio * fall
    # The ratios fall, so what is left is below a geometric series.
    rest = weight / (Interval.exact(1, bits) - ratio)
    return weights, Interval(0, rest.hi, bits)


_EXP_ERROR_UNITS = (1 << 13) + 16
"""Error of `_exp`, in units of 2^-32: twice 2^-20 from `x`, a few units from the tables."""


class GaussianWide:
    """Sampler of `P(X = k)` proportional to `exp(-k^2 / (2 sigma2))` by rejection, `1 <= sigma2 <= 2^56`."""

    def __init__(self, sigma2: Fraction) -> None:
        self.sigma2 = sigma2
        self.t = isqrt(int(sigma2)) + 1
        self.envelope = two_sided_geometric(Fraction(1, self.t))
        # x = v^2 with v = slope |y| - offset; both to 59 bits, so that slope |y| < 2^62 up to 8 sigma.
        self.furthest = isqrt(int(64 * sigma2))
        self.slope = isqrt(int(2**117 / sigma2))
        self.offset = isqrt(int(sigma2 * 2**117 / self.t**2))

    def draw(self, words: Words) -> int:
        """Return one draw from the law."""
        words = _Ahead(words)
        while True:
            y, u = self.envelope.draw(words), int.from_bytes(fetch(words, 4), "little")
            likely = self._exp(min(abs(y), self.furthest), *_lists())
            if u < likely - _EXP_ERROR_UNITS or (
                u <= likely + _EXP_ERROR_UNITS and self._accepts(y, u, words)
            ):
                return y

    def sample(self, size: int, words: Words) -> Integers:
        """Return `size` independent draws from the law."""
        out, done = np.empty(size, dtype=np.int64), 0
        while done < size:
            accepted = self._accepted(min(CHUNK, 16 + 11 * (size - done) // 8), words)[: size - done]
            out[done : done + len(accepted)] = accepted
            done += len(accepted)
        return out

    def _accepted(self, count: int, words: Words) -> Integers:
        """Return the accepted ones among `count` random candidates."""
        y = self.envelope.sample(count, words)
        u = np.frombuffer(words(4 * count), np.uint32, count).astype(np.int64)
        beyond = u - self._exp(np.minimum(np.abs(y), self.furthest), *_tables())
        accept = beyond < -_EXP_ERROR_UNITS
        for i in np.flatnonzero(np.abs(beyond) <= _EXP_ERROR_UNITS):
            accept[i] = self._accepts(int(y[i]), int(u[i]), words)
        return y[accept]

    def _exp(self, distance, coarse, fine):
        """Return `exp(-x) 2^32` for a candidate at a distance of at most 8 standard deviations."""
        # v to 29 bits: its error is below 2^-28 from the slope and 2^-29 from the shift, and v < 5,
        # so x = v^2 in units of 2^-20 is within 2 of the truth. Beyond 8 sigma the true value is below _MARGIN as well.
        v = abs(distance * self.slope - self.offset) >> 30
        x = v * v >> 38
        return coarse[x >> 10] * fine[x & 1023] >> 30

    def _accepts(self, y: int, u: int, words: Words) -> bool:
        """Return True if `U < exp(-x)`, decided exactly, for a `U` that begins with the 32 bits `u`."""
        x = (abs(y) - self.sigma2 / self.t) ** 2 / (2 * self.sigma2)
        bits = 32
        while True:
            bound = exp_neg(x, bits + 64)
            if bound.lo >= (u + 1) << 64:
                return True
            if bound.hi <= u << 64:
                return False
            u, bits = u << 64 | int.from_bytes(fetch(words, 8), "big"), bits + 64


@lru_cache(maxsize=1)
def _tables() -> tuple[Integers, Integers]:
    """Return tables of `floor(exp(-i / 2^10) 2^31)` for `i < 2^15` and of `exp(-j / 2^20)` for `j < 2^10`."""
    whole = [exp_neg(Fraction(i), 64).lo for i in range(32)]
    part = [exp_neg(Fraction(i, 1 << 10), 64).lo for i in range(1 << 10)]
    fine = [exp_neg(Fraction(i, 1 << 20), 64).lo >> 33 for i in range(1 << 10)]
    return np.array([a * b >> 97 for a in whole for b in part]), np.array(fine)


@lru_cache(maxsize=1)
def _lists() -> tuple[list[int], list[int]]:
    """Return the tables of exponentials as lists, which are faster for single draws."""
    coarse, fine = _tables()
    return coarse.tolist(), fine.tolist()


class _Ahead:
    """A source of random bytes that fetches 32 at a time within one call."""

    def __init__(self, words: Words) -> None:
        self.words, self.kept = words, b""

    def __call__(self, count: int) -> bytes:
        if len(self.kept) < count:
            self.kept = fetch(self.words, max(32, count))
        taken, self.kept = self.kept[:count], self.kept[count:]
        return taken
