"""Proven tables for two-way tables: coins that accept and split the sums of their last two rows."""

from __future__ import annotations

from fractions import Fraction

from trueup.kernel.lattice_samplers.tables import Pairs
from trueup.noise.lattice.tables import Decisions
from trueup.noise.samplers.interval import Interval, Powers

FARTHEST = 16
"""Coins of families that do not fade are stored for sums up to so many times 1 / epsilon; farther ones, which come up less
than once in a million tries, are settled one by one."""


def laplace_pairs(decisions: Decisions, epsilon: Fraction) -> Pairs:
    """Tabulate the coins that accept and split sums."""
    split = _Split(epsilon)
    return Pairs(
        decisions.coins([split.cell, split.pair, split.gap, split.end]),
        decisions.coins([split.inside, split.tail, split.share], count=max(1024, int(FARTHEST / epsilon))),
        decisions.steps([(split.beyond, split.reach(decisions.bits))]),
    )


class _Split:
    """Weights of one, two and four cells at `a = exp(-epsilon)`, `x = a^2` (see `kernel.lattice.tables`)."""

    def __init__(self, epsilon: Fraction) -> None:
        self.epsilon, self._powers = epsilon, Powers(epsilon)
        self._guard = 32 + 2 * int(1 / epsilon).bit_length()

    def cell(self, k: int, bits: int) -> Interval:
        return self._powers(k, bits + self._guard)

    def pair(self, k: int, bits: int) -> Interval:
        return self._pair(k, 1, bits)

    def gap(self, k: int, bits: int) -> Interval:
        return self._pair(k, 2, bits)

    def _pair(self, k: int, times: int, bits: int) -> Interval:
        """Return `G(k) / G(0) = a^k (1 + k (1 - x) / (1 + x))` at so many times epsilon."""
        return self._powers(times * k, bits + self._guard) * self._slope(k, times, bits)

    def _slope(self, k: int, times: int, bits: int) -> Interval:
        one, x = self._one_and_power(2 * times, bits)
        return one + Interval.exact(k, one.bits) * ((one - x) / (one + x))

    def share(self, k: int, bits: int) -> Interval:
        one, _ = self._one_and_power(2, bits)
        return one / self._slope(k, 2, bits)

    def end(self, k: int, bits: int) -> Interval:
        one, extra = self._one_and_extra(k, bits)
        return self._powers(k, one.bits) * (one + extra)

    def tail(self, k: int, bits: int) -> Interval:
        """Enclose the coin of a gap `k - 1`: coin 0 of a family is certain, and this one is impossible at 0."""
        one, extra = self._one_and_extra(k - 1, bits)
        return extra / (one + extra)

    def _one_and_extra(self, k: int, bits: int) -> tuple[Interval, Interval]:
        """Return 1 and `(1 - x^k) x / (1 + x^2)`."""
        one, x = self._one_and_power(2, bits)
        return one, (one - self._powers(2 * k, one.bits)) * x / (one + x * x)

    def inside(self, k: int, bits: int) -> Interval:
        """Enclose the coin of a sum of size `k - 1`."""
        one, x = self._one_and_power(2, bits)
        places = Interval.exact(k, one.bits)
        return places / (places + (x + x) / (one - x))

    def beyond(self, k: int, bits: int) -> Interval:
        if k < 1:
            return Interval.exact(0, bits)
        one, power = self._one_and_power(2 * k, bits)
        return one - power

    def reach(self, bits: int) -> range:
        """Return every k whose cdf is between 0 and `1 - 2^-bits`, and one more."""
        return range(1, int(bits / (2 * self.epsilon)) + 2)

    def _one_and_power(self, k: int, bits: int) -> tuple[Interval, Interval]:
        bits += self._guard
        return Interval.exact(1, bits), self._powers(k, bits)
