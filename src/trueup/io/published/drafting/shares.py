"""Columns of percentages, rates and other shares, which are no counts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.seen import SeenColumn, is_code
from trueup.io.published.drafting.sums import column_numbers

SHARE_NAMES = (
    r"%|per ?cent|pro[zc]ent|pourcent|porcent|\bshare\b|(?<![^\W_])rates?(?![^\W_])|"
    r"(?<![^\W_])(\w*anteile?|andel|taux|\w*quoten?|part d(u|es?))(?![^\W_])"
)
"""Words for shares in the names of columns."""
SHARE = re.compile(r"[-+−<>≤≥]?\s?\d[\d.,\s]*%")
_OF_ALL = re.compile(r"\b100 ?(%|percent)")
"""Says of a count that it is no sample."""
_COUNT_AND_SHARE = re.compile(r"\d\s?\([\d.,]+\s?%\)")


def holds_shares(column: SeenColumn) -> bool:
    """Return True if a column contains shares, judged by percent signs or by its name and small numbers or fractions."""
    held = column.held
    if 2 * sum(map(bool, map(SHARE.fullmatch, held))) > len(held):
        return all(SHARE.fullmatch(text) or is_code(text) or text == "0" for text in held)
    if not is_named(re.compile(SHARE_NAMES, re.IGNORECASE), column):
        return False
    numbers = [x for x in column_numbers(column) if x is not None]
    return bool(numbers) and (max(numbers) <= 100 or any(x != int(x) for x in numbers))


def is_named(names: re.Pattern[str], column: SeenColumn) -> bool:
    """Return True if a column's name has words for what is no count, and no cell shows a count before its share."""
    named = names.search(_OF_ALL.sub("", column.name)) is not None
    return named and not any(map(_COUNT_AND_SHARE.search, column.held))


def proportional(every: Sequence[SeenColumn], rows: int = 300) -> dict[int, str]:
    """Return the positions of columns that show the shares of whole counts, with the names of these counts.

    Fractions from 0 to 100 are shares if one factor turns the counts of the first rows into them, up to their rounding.
    """
    some = [column._replace(texts=column.texts[:rows]) for column in every]
    numbers = [np.array(column_numbers(column), float) for column in some]
    whole = [
        at for at, x in enumerate(numbers) if not (x < 0).any() and (np.isnan(x) | (x == np.floor(x))).all()
    ]
    found: dict[int, str] = {}
    for at, (column, shares) in enumerate(zip(some, numbers)):
        fractions = filter(None, (re.fullmatch(r"\d{1,3}[.,](\d+)", text) for text in column.texts))
        decimals = max((len(fraction[1]) for fraction in fractions), default=0)
        if at and decimals and at not in whole and not ((shares < 0) | (shares > 100)).any():
            of = next((k for k in whole if _have_one_factor(shares, numbers[k], 10.0**-decimals)), None)
            found |= {} if of is None else {at: every[of].name}
    return found


def _have_one_factor(shares: NDArray[np.float64], counts: NDArray[np.float64], unit: float) -> bool:
    """Return True if one factor turns whole counts into shares that are rounded to a unit, which is no chance."""
    both = ~np.isnan(shares) & ~np.isnan(counts)
    some, of = shares[both], counts[both]
    told = len(np.unique(of[some > unit / 2]))
    if told < 3:
        return False
    held = of > 0
    low, high = ((some[held] + half) / of[held] for half in (-unit / 2, unit / 2))
    by_chance = min(2 * unit / some.max(), 1.0) ** (told - 1)
    return bool(by_chance < 1e-3 and (some[~held] <= unit / 2).all() and low.max() <= high.min() * (1 + 1e-9))
