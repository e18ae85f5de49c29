"""Exact sampler of the discrete Gaussian law from its own table, for standard deviations up to 1,024."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from trueup.noise.samplers.interval import Interval, exp_neg
from trueup.noise.samplers.inversion import Inversion

_LONG_LOOKUP = 2**14


class GaussianTable(Inversion):
    """Sampler of `P(X = k)` proportional to `exp(-k^2 / (2 sigma2))` by inversion.

    Parameters
    ----------
    sigma2
        Any positive rational up to about 2^20 (the table has about `19 sqrt(sigma2)` thresholds).
    lookup_bits, word_bits
        As in `Inversion`; by default 16 or 20, and 64.
    """

    def __init__(self, sigma2: Fraction, *, lookup_bits: int | None = None, word_bits: int = 64) -> None:
        self.sigma2 = sigma2
        self._tails: dict[int, list[Interval]] = {}
        # P(X >= k) <= exp(-k^2 / (2 sigma2)) < 2^-word_bits as soon as k^2 > 1.4 word_bits sigma2.
        reach = isqrt(int(7 * word_bits * sigma2 / 5)) + 1
        default = 20 if sigma2 > _LONG_LOOKUP else 16
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
    """Enclose `P(X >= k)` for `k = 0, 1, ..`; the last one encloses all that follow as well."""
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
    """Enclose `w_k = exp(-k^2 / (2 sigma2))` until it vanishes at this precision, and the sum of the rest."""
    weight, weights = Interval.exact(1, bits), []
    # w_{k+1} = w_k r_k with r_k = exp(-(2k + 1) / (2 sigma2)) and r_{k+1} = r_k exp(-1 / sigma2).
    ratio, fall = exp_neg(1 / (2 * sigma2), bits), exp_neg(1 / sigma2, bits)
    while weight.lo > 0:
        weights.append(weight)
        weight, ratio = weight * ratio, ratio * fall
    # The ratios fall, so what is left is below a geometric series.
    rest = weight / (Interval.exact(1, bits) - ratio)
    return weights, Interval(0, rest.hi, bits)
