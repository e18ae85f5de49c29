"""Conversions between the privacy losses rho, epsilon and delta, rounded to the safe side.

For every alpha > 1, rho-zCDP implies (epsilon, delta)-DP with

    epsilon = alpha rho + ln(1 - 1/alpha) + ln(1 / (alpha delta)) / (alpha - 1)

(Canonne, Kamath and Steinke, 2020, Proposition 12 with Definition 7). Any alpha gives a valid
bound, so floats may *choose* it, while the bound *at* it is computed with proof: everything in
fractions, except the logarithm, which Python's `decimal` rounds correctly and which is taken one unit in
the last place outward.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from trueup.arrays.exact import Number, exact_number, exact_or_zero
from trueup.errors import SpecError

# No delta below exp(-1,000) is ever claimed: raising it to that is outward too.
_SMALLEST_LOG = Fraction(-1_000)
_UP = decimal.Context(prec=60, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_DOWN = decimal.Context(prec=15, rounding=decimal.ROUND_FLOOR, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_HALVINGS = 60
_UPWARD = decimal.Context(
    prec=20, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
)


def epsilon_of(rho: Number, delta: Number) -> Fraction:
    """Return an upper bound on the epsilon of (epsilon, delta)-DP that rho-zCDP implies.

    Parameters
    ----------
    rho
        zCDP loss, zero or more.
    delta
        Between zero and one, both excluded.

    Returns
    -------
    Fraction
        A decimal number of 20 digits, never below the true value at the chosen alpha.

    References
    ----------
    Canonne, Kamath and Steinke (2020), proposition 12.

    Raises
    ------
    SpecError
        If `rho` is negative or `delta` is not between zero and one.

    Examples
    --------
    >>> float(epsilon_of(0.5, 1e-6)) < 5.22154
    True
    """
    rho, delta = exact_or_zero(rho, "rho"), _delta(delta)
    if rho == 0:
        return Fraction(0)
    log_delta = math.log(delta.numerator) - math.log(delta.denominator)

    def bound(excess: float) -> float:
        alpha = 1 + excess
        return alpha * _float(rho) + math.log(excess / alpha) - (log_delta + math.log(alpha)) / excess

    excess = _minimise(bound)
    alpha = 1 + excess
    exact = alpha * rho + _log_up(excess / alpha) + _log_up(1 / (alpha * delta)) / excess
    return max(Fraction(_UPWARD.plus(_decimal_up(exact))), Fraction(0))


def delta_of(rho: Number, epsilon: Number) -> Fraction:
    """Return an upper bound on the delta of (epsilon, delta)-DP that rho-zCDP implies.

    Parameters
    ----------
    rho, epsilon
        zCDP loss and epsilon, both zero or more.

    Raises
    ------
    SpecError
        If either is negative.

    References
    ----------
    Canonne, Kamath and Steinke (2020), proposition 12.

    Examples
    --------
    >>> float(delta_of(0.5, 6)) < 1.64e-8
    True
    """
    rho, epsilon = exact_or_zero(rho, "rho"), exact_or_zero(epsilon, "epsilon")
    if rho == 0:
        return Fraction(0)

    def bound(excess: float) -> float:
        alpha = 1 + excess
        return excess * (alpha * _float(rho) - _float(epsilon) + math.log(excess / alpha)) - math.log(alpha)

    excess = _minimise(bound)
    alpha = 1 + excess
    log = excess * (alpha * rho - epsilon + _log_up(excess / alpha)) + _log_up(1 / alpha)
    exponent = _decimal_up(max(min(log, Fraction(0)), _SMALLEST_LOG))
    return min(Fraction(_UPWARD.plus(_UP.next_plus(_UP.exp(exponent)))), Fraction(1))


def rho_of(epsilon: Number, delta: Number = 0) -> Fraction:
    """Return the rho of zCDP for a pure epsilon, or a rho that implies (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon
        Above zero.
    delta
        Zero: the rho that follows from pure epsilon, `epsilon^2 / 2` (Bun and Steinke, 2016, proposition 1.4). Above zero: the
        largest rho of about 12 digits from which (epsilon, delta) follows, never above it: what a budget in rho may be.

    Raises
    ------
    SpecError
        If epsilon is not above zero, or delta not between zero and one.

    Examples
    --------
    >>> rho_of("1/2"), round(float(rho_of(1, 1e-10)), 6)
    (Fraction(1, 8), 0.013243)
    >>> epsilon_of(rho_of(1, 1e-10), 1e-10) <= 1
    True
    """
    epsilon, delta = exact_number(epsilon, "epsilon"), exact_or_zero(delta, "delta")
    if delta == 0:
        return epsilon**2 / 2
    low, high = Fraction(0), epsilon + 1  # epsilon exceeds rho, and delta is at most 1
    for _ in range(_HALVINGS):
        middle = Fraction(
            _DOWN.divide(Decimal((low + high).numerator), Decimal(2 * (low + high).denominator))
        )
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def _minimise(bound: Callable[[float], float]) -> Fraction:
    """Return the nearly optimal `alpha - 1` of a bound, found by a grid and golden-section search."""
    grid = [t / 4 for t in range(-160, 161)]
    best = min(grid, key=lambda t: _at_excess(bound, t))
    low, high = best - 0.25, best + 0.25
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, right) if _at_excess(bound, left) < _at_excess(bound, right) else (left, high)
    return Fraction(math.exp((low + high) / 2))


def _at_excess(bound: Callable[[float], float], t: float) -> float:
    try:
        return bound(math.exp(t))
    except OverflowError:
        return math.inf


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _log_up(value: Fraction) -> Fraction:
    return Fraction(_UP.next_plus(_UP.ln(_decimal_up(value))))


def _decimal_up(value: Fraction) -> Decimal:
    return _UP.divide(Decimal(value.numerator), Decimal(value.denominator))


def _delta(value: Number) -> Fraction:
    try:
        delta = exact_number(value, "delta")
    except SpecError:
        delta = Fraction(0)
    if not 0 < delta < 1:
        raise SpecError(f"delta = {value}", needed="a number between 0 and 1, such as 1e-10")
    return delta
