"""Exhaustive check of the samplers' tables: every first word against the cdf in decimal arithmetic.

The tables are built with binary enclosures and recurrences; here the standard library's decimal exponential,
correctly rounded to 60 digits, is summed afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from trueup.noise.samplers import UNDECIDED, Inversion
from trueup.noise.samplers.gaussian import GaussianTable, GaussianWide
from trueup.noise.samplers.geometric import TwoSidedGeometric

Cdf = Callable[[int], Decimal]
_DIGITS = 60


@dataclass(frozen=True)
class FirstWords:
    """Outcome of a check: tables and cells checked, cells left open to later words, and cells with a wrong answer."""

    tables: int
    cells: int
    undecided: int
    wrong: int


def check_first_words(law: Any) -> FirstWords:
    """Check every cell of every table that the law's draws read first.

    A wide law is drawn digit by digit, so its digits' tables are checked; the wide discrete Gaussian is drawn
    by rejection, and the tables are those of its proposals.

    Examples
    --------
    >>> from trueup.noise import DiscreteLaplace
    >>> check_first_words(DiscreteLaplace("1/10"))
    FirstWords(tables=1, cells=65536, undecided=182, wrong=0)
    """
    with localcontext(Context(prec=_DIGITS)):
        found = [(table, wrong_cells(table, cdf)) for table, cdf in _tables(law)]
    lookups = [table.lookup for table, _ in found]
    return FirstWords(
        tables=len(found),
        cells=sum(map(len, lookups)),
        undecided=sum(int(np.sum(lookup == UNDECIDED)) for lookup in lookups),
        wrong=sum(wrong for _, wrong in found),
    )


def wrong_cells(table: Inversion, cdf: Cdf) -> int:
    """Count cells whose answer is not that of every `U` that begins with them."""
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
        yield table, _low_digit(rate * 2**shift, 1 << bits)
        shift += bits
    yield sampler.first, _first_digit(rate, 1 << shift)


def _low_digit(rate: Decimal, base: int) -> Cdf:
    return _running([(-rate * digit).exp() for digit in range(base)], 0)


def _first_digit(rate: Decimal, base: int) -> Cdf:
    # X = base y + l: the mass of y sums exp(-rate |X|) over the digits l, where |X| = base |y| - l if y < 0.
    up = sum(((-rate * digit).exp() for digit in range(base)), Decimal(0))
    down = sum(((rate * digit).exp() for digit in range(base)), Decimal(0))
    furthest = int(140 / (rate * base)) + 2
    return _cumulated(lambda y: (-rate * base * abs(y)).exp() * (up if y >= 0 else down), furthest)


def _cumulated(mass: Callable[[int], Decimal], furthest: int) -> Cdf:
    """Return the cdf of a law on `-furthest .. furthest` from its mass up to a factor."""
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
