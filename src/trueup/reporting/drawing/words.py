"""Texts for numbers, units and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.digits import to_digits
from trueup.model.cells import Margin
from trueup.privacy import outward

_PLURALS = {"child": "children", "man": "men", "woman": "women", "person": "persons"}


def number(value: float) -> str:
    """Return a number as text: whole numbers in full, others to three digits, with separators of thousands.

    Examples
    --------
    >>> number(-1234), number(0.12345), number(1234.5)
    ('−1,234', '0.123', '1,234')
    """
    if not isfinite(value):
        return "–" if value != value else "unlimited"
    whole = float(value).is_integer()
    text = f"{value:,.0f}" if whole or abs(value) >= 100 else to_digits(value, 3)
    return text.replace("-", "−")


def numbers(values: NDArray) -> list[str]:
    """Return a column of numbers as texts with equal decimals, and a dash for missing numbers.

    Examples
    --------
    >>> numbers(np.array([5.7, 4.642, np.nan])), numbers(np.array([-2, 2**60 + 1]))
    (['5.70', '4.64', '–'], ['−2', '1,152,921,504,606,846,977'])
    """
    known = np.ma.masked_invalid(values)
    text = "{:,}" if known.dtype.kind in "iu" else "{:,." + str(_decimals(known.compressed())) + "f}"
    return ["–" if v is None else text.format(v).replace("-", "−") for v in known.tolist()]


def _decimals(values: NDArray) -> int:
    """Return the number of decimals for a column: 0 for whole numbers, 1 from 100 on, otherwise 2 or more."""
    if (values == np.floor(values)).all():
        return 0
    largest = float(np.abs(values).max())
    return 1 if largest >= 100 else max(2, 1 - int(np.floor(np.log10(largest))))


def exact(amount: Fraction) -> str:
    """Return an exact amount as text, followed by a decimal number, rounded up, if it is not whole.

    Examples
    --------
    >>> exact(Fraction(1, 20)), exact(Fraction(2)), exact(Fraction(1, 3))
    ('1/20 (0.05)', '2', '1/3 (at most 0.334)')
    """
    if amount.denominator == 1:
        return str(amount)
    near = outward(amount, 3)
    return f"{amount} ({near if Fraction(near) == amount else f'at most {near}'})"


def percent(share: float) -> str:
    """Return a share as text in per cent.

    Examples
    --------
    >>> percent(0.05), percent(1 / 3)
    ('5 %', '33.3 %')
    """
    return f"{to_digits(100 * share, 3)} %"


def plural(unit: str) -> str:
    """Return the plural of a unit's name.

    Examples
    --------
    >>> plural("person"), plural("family"), plural("child")
    ('persons', 'families', 'children')
    """
    if unit in _PLURALS:
        return _PLURALS[unit]
    if unit.endswith("y") and unit[-2:-1] not in "aeiou":
        return f"{unit[:-1]}ies"
    return unit if unit.endswith("s") else f"{unit}s"


def plain(name: str) -> str:
    """Return a name of the spec with blanks in place of underscores."""
    return name.replace("_", " ")


def table_name(margin: Margin) -> str:
    """Return the name of a marginal table, such as `county by age and sex`.

    Examples
    --------
    >>> table_name(Margin("block_group", ("sex", "age")))
    'block group by sex and age'
    """
    by = f" by {listing(margin.attributes)}" if margin.attributes else ""
    return plain(margin.level) + plain(by) + margin.whose


def listing(names: Iterable[str]) -> str:
    """Return names joined by commas, and the last one by "and".

    Examples
    --------
    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def said(value: Any) -> str:
    """Return a parameter or a statistic as text for readers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | np.number):
        return number(float(value))
    if isinstance(value, Mapping):
        return "; ".join(f"{plain(str(k))}: {said(v)}" for k, v in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        return ", ".join(said(v) for v in value)
    return str(value)
