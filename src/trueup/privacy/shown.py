"""Figures of privacy loss for display, rounded outward so that none is below what was proved."""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction

DIGITS = 4
"""Significant digits of a figure, unless told otherwise."""


def outward(amount: Fraction | float, digits: int = DIGITS) -> str:
    """Return a loss in a few significant digits, never below the amount.

    Parameters
    ----------
    amount
        Zero or more.
    digits
        Significant digits, 15 at most.

    Examples
    --------
    >>> outward(Fraction(1, 3), 3), outward(Fraction(1, 20)), outward(Fraction(100_001, 10_000)), outward(Fraction(1, 10**10))
    ('0.334', '0.05', '10.01', '1e-10')
    """
    up = decimal.Context(digits, decimal.ROUND_CEILING, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    exact = Fraction(amount)
    near = up.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    double = float(near)
    if not near or 1e-300 < double < 1e300:  # then so many digits are written as they are
        return f"{double:.{digits}g}"
    return f"{near.normalize():e}"
