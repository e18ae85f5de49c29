"""Columns of numbers that are not counts: levels, row numbers, codes that identify rows, and shares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.pairs import are_alike, distinct_keys
from trueup.io.published.drafting.seen import SeenColumn, is_code, is_number
from trueup.io.published.drafting.sums import base_of, column_numbers
from trueup.io.published.perturbed.notes import carried_keys

SHARE_NAMES = (
    r"%|per ?cent|pro[zc]ent|pourcent|porcent|\bshare\b|(?<![^\W_])rates?(?![^\W_])|"
    r"(?<![^\W_])(\w*anteile?|andel|taux|\w*quoten?|part d(u|es?))(?![^\W_])"
)
"""Words for shares in the names of columns."""
_SHARE_NAMED = re.compile(SHARE_NAMES, re.IGNORECASE)
SHARE = re.compile(r"[-+−<>≤≥]?\s?\d[\d.,\s]*%")
_OF_ALL = re.compile(r"\b100 ?(%|percent)")
"""Says of a count that it is no sample."""
_COUNT_AND_SHARE = re.compile(r"\d\s?\([\d.,]+\s?%\)")


def without_formal(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn]]:
    """Return the value columns without those that only repeat as a number what the keys state."""
    rows = len(values[0].texts)
    ways = [[*zip(*(map(_form, key.texts) for key in keys))], *(key.texts for key in keys)]
    ways = [way for way in ways if way and rows >= max(6, 3 * len(set(way)))]
    formal = [
        column
        for column in values
        if all(map(str.isdigit, column.held))
        and set(column.held) != {"0"}
        and any(len(set(zip(way, column.texts))) == len(set(way)) for way in ways)
    ]
    return ([c for c in values if c not in formal], formal) if len(formal) < len(values) else (values, [])


def crossing_keys(every: Sequence[SeenColumn]) -> list[SeenColumn]:
    """Return the first columns if these alone identify the rows, else an empty list.

    Counts do not cross with earlier columns, so as many rows as combinations, or half as many, show that all are keys.
    """
    found: list[SeenColumn] = []
    ways, rows = 1, len(every[0].texts) if every else 0
    for column in every[:-1]:
        ways *= len(set(column.texts)) if distinct_keys([*found, column]) > distinct_keys(found) else 1
        if 2 * len(set(column.texts)) > rows or "" in column.texts or ways > 2 * rows:
            break
        found.append(column)
        if distinct_keys(found) == rows > 7:
            return [c for c in found if not any(_numbers_names(c, other) for other in found)]
    return []


def _numbers_names(column: SeenColumn, names: SeenColumn) -> bool:
    """Return True if most texts of a column are numbers, each of which another column states in words."""
    words = not any(map(is_number, names.held))
    return words and are_alike(column, names) and 2 * sum(map(is_number, column.held)) > len(column.held)


def counts_rows(every: Sequence[SeenColumn]) -> bool:
    """Return True if the first column numbers the rows, which later columns identify without it."""
    texts = every[0].texts if every else []
    if not any(texts == [str(k + first) for k in range(len(texts))] for first in (0, 1)):
        return False
    named = any(len(set(c.texts)) == len(texts) > 2 and not any(map(is_number, c.texts)) for c in every[1:])
    return named or bool(crossing_keys(every[1:]))


def without_numbers_of_rows(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn]]:
    """Return the value columns without those that only number the rows."""
    numbered = []
    apart = any(len(set(key.texts)) == len(key.texts) for key in keys) or distinct_keys(keys) == len(
        values[0].texts
    )
    for column in values[:-1] if apart else ():
        rest = [c for c in values if c is not column and c not in numbered]
        own, *others = (base_of([x for x in column_numbers(c) if x is not None], "") for c in (column, *rest))
        bases = {*others} - {None}
        unlike = own not in bases and bool(bases)
        if not _rises(column) or (not unlike and (bases or all(map(_rises, rest)))):
            break
        numbered.append(column)
    return [c for c in values if c not in numbered], numbered


def _has_one_width(column: SeenColumn) -> bool:
    """Return True if the codes in a column are all different and equally long."""
    return (
        len(set(column.held)) == len(column.held)
        and len({*map(len, column.held)}) == 1 < len(column.held[0]) - 1
    )


def _rises(column: SeenColumn) -> bool:
    """Return True if a column numbers its rows from 1, or contains long codes that rise from row to row."""
    if len(column.texts) < 6 or not all(re.fullmatch(r"\d{1,12}", text) for text in column.texts):
        return False
    numbers = [*map(int, column.texts)]
    counted = numbers == [*range(1, len(numbers) + 1)]
    return counted or (numbers[0] > 99 and all(a < b for a, b in pairwise(numbers)))


def _form(text: str) -> int:
    """Return the length of a text if it is a code, 0 if it is blank, or -1 if it has words."""
    return len(text) if not text or (any(map(str.isdigit, text)) and " " not in text) else -1


def with_numbered_keys(
    keys: list[SeenColumn], periods: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn]]:
    """Return the columns with the first ones of whole numbers as keys, if the rows need them to differ."""
    # A few names that repeat are no reason to take counts, which differ from row to row, for codes.
    few = distinct_keys(keys) < 0.8 * len(values[0].texts)
    for count in range(len(values)):
        numbered = values[:count]
        if not all(re.fullmatch(r"\d{1,12}|[@#^&]", text) for column in numbered for text in column.held):
            break
        ways = [
            [column.texts for column in (*keys, *periods, *numbered)],
            carried_keys([c.texts for c in (*keys, *periods, *numbered)]),
        ]
        if not all(
            (few and 2 * len(set(column.held)) <= len(column.held))
            or _rises(column)
            or _has_one_width(column)
            for column in numbered
        ):
            break
        if any(len(set(zip(*way))) == len(values[0].texts) for way in ways):
            return [*keys, *numbered], values[count:]
    return keys, values


def holds_shares(column: SeenColumn) -> bool:
    """Return True if a column contains shares, judged by percent signs or by its name and small numbers or fractions."""
    held = column.held
    if 2 * sum(map(bool, map(SHARE.fullmatch, held))) > len(held):
        return all(SHARE.fullmatch(text) or is_code(text) or text == "0" for text in held)
    if not is_named(_SHARE_NAMED, column):
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
