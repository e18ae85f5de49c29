"""Numbers as readers expect them: to some digits, and never with an exponent."""

from __future__ import annotations

import numpy as np

ROUNDING_SHARE = 1e-9
"""An error this small beside its value is one of rounding."""
WHOLE_FROM = 100_000
"""Counts from which a tenth of one is not shown."""


def to_digits(value: float, many: int) -> str:
    """Return a number to so many significant digits, as text.

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
    """Return the Monte Carlo error of a value to one digit; 0 if it is one of rounding.

    Examples
    --------
    >>> error_digit(1.8e-18, 0.1), error_digit(0.0213, 0.1), error_digit(120.0, 4e3)
    ('0', '0.02', '100')
    """
    return "0" if error <= ROUNDING_SHARE * abs(value) else to_digits(error, 1)


def to_figure(value: float) -> str:
    """Return a count with at most one decimal, and none from 100,000 on; a small ratio with three digits, a dash for none.

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
