"""zCDP to (epsilon, delta), rounded outward.

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

from trueup.errors import SpecError

_UP = decimal.Context(prec=60, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_SHOWN = decimal.Context(
    prec=20, rounding=decimal.ROUND_CEILING, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN
)


def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Bound epsilon from above such that rho-zCDP implies (epsilon, delta)-DP.

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

    Raises
    ------
    SpecError
        If `rho` is negative or `delta` is not between zero and one.

    Examples
    --------
    >>> float(epsilon_of(Fraction(1, 2), Fraction(1, 10**6))) < 5.22154
    True
    """
    _check_rho(rho)
    _check_delta(delta)
    if rho == 0:
        return Fraction(0)
    log_delta = math.log(delta.numerator) - math.log(delta.denominator)

    def bound(excess: float) -> float:
        alpha = 1 + excess
        return alpha * _float(rho) + math.log(excess / alpha) - (log_delta + math.log(alpha)) / excess

    excess = _minimise(bound)
    alpha = 1 + excess
    exact = alpha * rho + _log_up(excess / alpha) + _log_up(1 / (alpha * delta)) / excess
    return max(_round_up(exact), Fraction(0))


def _minimise(bound: Callable[[float], float]) -> Fraction:
    """A good excess `alpha - 1`, found on a log scale: a coarse grid, then golden sections."""
    grid = [t / 4 for t in range(-160, 161)]
    best = min(grid, key=lambda t: _at(bound, t))
    low, high = best - 0.25, best + 0.25
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, right) if _at(bound, left) < _at(bound, right) else (left, high)
    return Fraction(math.exp((low + high) / 2))


def _at(bound: Callable[[float], float], t: float) -> float:
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


def _round_up(value: Fraction) -> Fraction:
    return Fraction(_SHOWN.plus(_decimal_up(value)))


def _decimal_up(value: Fraction) -> Decimal:
    return _UP.divide(Decimal(value.numerator), Decimal(value.denominator))


def _check_rho(rho: object) -> None:
    if not isinstance(rho, Fraction) or rho < 0:
        raise SpecError("rho is negative or no Fraction", needed="an exact rho, zero or more")


def _check_delta(delta: object) -> None:
    if not isinstance(delta, Fraction) or not 0 < delta < 1:
        raise SpecError(
            "delta is not between zero and one, or no Fraction", needed="an exact delta such as 1/10**10"
        )
