"""Formatting of numbers for readers, reading of exact positive rationals, and records displayed in three lines."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from html import escape
from math import isfinite
from numbers import Rational, Real

import numpy as np

from trueup.errors import SpecError

ROUNDING_SHARE = 1e-9
"""An error this small beside its value is one of rounding."""
WHOLE_FROM = 100_000
"""Counts from which a tenth of one is not shown."""


def to_digits(value: float, many: int) -> str:
    """Return a number as text with a given number of significant digits.

    Examples
    --------
    >>> to_digits(120.0, 2), to_digits(0.000123, 1), to_digits(1234.5, 3), to_digits(float("nan"), 2)
    ('120', '0.0001', '1,230', 'nan')
    """
    rounded = float(f"{value:.{many}g}")
    if not np.isfinite(rounded):
        return str(rounded)
    if rounded.is_integer():
        return f"{rounded:,.0f}"
    return np.format_float_positional(rounded, trim="-")


def error_digit(error: float, value: float) -> str:
    """Return the Monte Carlo error of a value to one digit, or 0 if it is only a rounding error.

    Examples
    --------
    >>> error_digit(1.8e-18, 0.1), error_digit(0.0213, 0.1), error_digit(120.0, 4e3)
    ('0', '0.02', '100')
    """
    return "0" if error <= ROUNDING_SHARE * abs(value) else to_digits(error, 1)


def to_figure(value: float) -> str:
    """Return a number as text: counts with at most one decimal, small ratios with three digits, NaN as `–`.

    Examples
    --------
    >>> to_figure(1234.06), to_figure(326925875.02), to_figure(0.51234), to_figure(float("nan"))
    ('1,234.1', '326,925,875', '0.512', '–')
    """
    if value != value:
        return "–"
    if value == round(value) or abs(value) >= WHOLE_FROM:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else to_digits(value, 3)


# Four digits of exponent: Fraction("1e1000000000") would fill the memory.
_WRITTEN = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?(/\d+)?\s*", re.ASCII)
_LONGEST = 2000


def rational(value: object, what: str = "value") -> Fraction:
    """Return the exact positive fraction that is given as `"1/2"`, `"0.1"`, `"1e-3"`, an int, a Fraction or a Decimal.

    Parameters
    ----------
    value
        The given value. A float is refused, because 0.1 is not one tenth: write `"0.1"`.
    what
        Its name, for the error.

    Examples
    --------
    >>> rational("0.1") * 10 == rational("2/2") == 1
    True
    >>> rational("3.") == 3, rational(".5") * 2 == 1
    (True, True)
    >>> rational(0.1, "epsilon")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.SpecError: epsilon is the float 0.1. ... To do: write it as text, "0.1" or "1/10".
    """
    number = _read_rational(value, what)
    if number <= 0:
        raise SpecError(f"{what} is {_short_value(value)}", needed="a number above zero", remedy=_ABOVE_ZERO)
    return number


_ABOVE_ZERO = 'write a positive number such as "1/2"; publishing without noise is declaring an invariant'


def _read_rational(value: object, what: str) -> Fraction:
    if isinstance(value, Rational) and not isinstance(value, bool):
        number = Fraction(int(value.numerator), int(value.denominator))
        if max(abs(number.numerator), number.denominator).bit_length() > 4 * _LONGEST:
            raise SpecError(
                f"{what} has more than {_LONGEST:,} digits", needed=f"a number of at most {_LONGEST:,} digits"
            )
        return number
    if isinstance(value, Decimal):
        return _read_rational(str(value), what)
    if isinstance(value, str) and len(value) <= _LONGEST and _WRITTEN.fullmatch(value):
        return _rational_from_text(value, what)
    raise _unreadable(value, what)


def _rational_from_text(text: str, what: str) -> Fraction:
    above, _, below = text.partition("/")
    try:
        return Fraction(above) / int(below or 1)
    except ZeroDivisionError:
        raise SpecError(f"{what} is {_short_value(text)}", needed="a denominator above zero") from None


def _unreadable(value: object, what: str) -> SpecError:
    if isinstance(value, Real) and not isinstance(value, bool) and isfinite(value):
        written = repr(float(value))
        remedy = f'write it as text, "{written}" or "{Fraction(written)}"'
        return SpecError(f"{what} is the float {written}", needed="an exact number", remedy=remedy)
    remedy = 'write "1/2", "0.1" or 3'
    return SpecError(
        f"{what} is {_short_value(value)}", needed="a finite, exact, positive number", remedy=remedy
    )


def _short_value(value: object) -> str:
    """Return a short value as it was written, otherwise the name of its type."""
    if isinstance(value, str | int | float | Fraction | Decimal) and len(text := repr(value)) <= 40:
        return text
    return f"a {type(value).__name__}"


class ThreeLines:
    """A record that is displayed in three lines: what it is, and two lines of facts."""

    def _lines(self) -> tuple[str, str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n  ".join(self._lines())

    def _repr_html_(self) -> str:
        title, *more = map(escape, self._lines())
        rows = "".join(f"<tr><td style='text-align:left'>{line}</td></tr>" for line in more)
        return f"<table><thead><tr><th style='text-align:left'>{title}</th></tr></thead><tbody>{rows}</tbody></table>"
