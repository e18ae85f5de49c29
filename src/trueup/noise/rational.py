"""Exact positive rational numbers in their written forms."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Rational, Real

from trueup.errors import SpecError

# Four digits of exponent: Fraction("1e1000000000") would fill the memory.
_WRITTEN = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?(/\d+)?\s*", re.ASCII)
_LONGEST = 2000


def rational(value: object, what: str = "value") -> Fraction:
    """Read an exact positive rational: `"1/2"`, `"0.1"`, `"1e-3"`, an int, a Fraction, a Decimal.

    Parameters
    ----------
    value
        What was given. A float is refused, because 0.1 is not one tenth: write `"0.1"`.
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
    number = _read(value, what)
    if number <= 0:
        raise SpecError(f"{what} is {_shown(value)}", needed="a number above zero", remedy=_ABOVE_ZERO)
    return number


_ABOVE_ZERO = 'write a positive number such as "1/2"; publishing without noise is declaring an invariant'


def _read(value: object, what: str) -> Fraction:
    if isinstance(value, Rational) and not isinstance(value, bool):
        number = Fraction(int(value.numerator), int(value.denominator))
        if max(abs(number.numerator), number.denominator).bit_length() > 4 * _LONGEST:
            raise SpecError(
                f"{what} has more than {_LONGEST:,} digits", needed="a number that a budget can be"
            )
        return number
    if isinstance(value, Decimal):
        return _read(str(value), what)
    if isinstance(value, str) and len(value) <= _LONGEST and _WRITTEN.fullmatch(value):
        return _from_text(value, what)
    raise _unreadable(value, what)


def _from_text(text: str, what: str) -> Fraction:
    above, _, below = text.partition("/")
    try:
        return Fraction(above) / int(below or 1)
    except ZeroDivisionError:
        raise SpecError(f"{what} is {_shown(text)}", needed="a denominator above zero") from None


def _unreadable(value: object, what: str) -> SpecError:
    if isinstance(value, Real) and not isinstance(value, bool) and isfinite(value):
        written = repr(float(value))
        remedy = f'write it as text, "{written}" or "{Fraction(written)}"'
        return SpecError(f"{what} is the float {written}", needed="an exact number", remedy=remedy)
    remedy = 'write "1/2", "0.1" or 3'
    return SpecError(f"{what} is {_shown(value)}", needed="a finite, exact, positive number", remedy=remedy)


def _shown(value: object) -> str:
    """Return a short value as it was written, anything else by its type."""
    if isinstance(value, str | int | float | Fraction | Decimal) and len(text := repr(value)) <= 40:
        return text
    return f"a {type(value).__name__}"
