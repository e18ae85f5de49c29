"""Composition of privacy losses in exact fractions.

Losses add: pure epsilons, zCDP rhos (Bun and Steinke, 2016, Lemma 2.3) and deltas, each over
levels, queries and releases. Fractions make the sum independent of order and grouping, and ten
times a tenth exactly one; rounded floats would not. A pure epsilon also counts as
`rho = epsilon^2 / 2` (Bun and Steinke, Proposition 1.4), so that one rho can bound everything.
With a delta the same holds outside an event of probability delta (section 8 there).
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from trueup.arrays.losses import epsilon_of
from trueup.errors import PrivacyError, SpecError
from trueup.noise.cost import Cost

ZERO = Fraction(0)


@dataclass(frozen=True)
class Loss:
    """The composed privacy loss of one step of one neighbour relation; it adds up whatever invariants are shared.

    Attributes
    ----------
    epsilon
        Sum of the losses stated in pure epsilon.
    rho
        Sum of the losses stated in zCDP rho.
    converted
        What the losses stated in epsilon amount to in rho, each on its own: sum of epsilon^2 / 2.
    delta
        Sum of the deltas.

    Examples
    --------
    >>> spent = compose([Cost("epsilon", Fraction(1, 10))] * 10)
    >>> spent.epsilon, spent.zcdp
    (Fraction(1, 1), Fraction(1, 20))
    """

    epsilon: Fraction = ZERO
    rho: Fraction = ZERO
    converted: Fraction = ZERO
    delta: Fraction = ZERO

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            self.epsilon + other.epsilon,
            self.rho + other.rho,
            self.converted + other.converted,
            self.delta + other.delta,
        )

    def __sub__(self, other: Loss) -> Loss:
        """Subtract a loss that was part of this one."""
        parts = ("epsilon", "rho", "converted", "delta")
        left = {name: getattr(self, name) - getattr(other, name) for name in parts}
        if min(left.values()) < 0:
            raise PrivacyError("the subtracted loss was not part of the sum", remedy="report this")
        return replace(self, **left)

    @property
    def zcdp(self) -> Fraction:
        """Return the whole loss in rho."""
        return self.rho + self.converted

    def at_delta(self, delta: Fraction) -> Fraction:
        """Return an epsilon such that the whole loss is (epsilon, delta)-DP, rounded outward.

        Examples
        --------
        >>> float(compose([Cost("rho", Fraction(1))]).at_delta(Fraction(1, 10**10)))
        10.0...
        """
        left = delta - self.delta
        if left == 0 and not self.rho:
            return self.epsilon
        if left <= 0:
            raise PrivacyError("the delta is used up by the composed losses", remedy="ask for a larger delta")
        # Either keep the pure parts as they are, or read everything in rho: both bound the loss.
        mixed = self.epsilon + (epsilon_of(self.rho, left) if self.rho else ZERO)
        return min(mixed, epsilon_of(self.zcdp, left)) if self.zcdp else ZERO


def compose(costs: Iterable[Cost]) -> Loss:
    """Sum the losses of costs that were stated for one step of one neighbour relation.

    Raises
    ------
    SpecError
        If a cost is no exact, nonnegative amount in a known currency.
    """
    costs = tuple(costs)
    for cost in costs:
        _check(cost)
    epsilons = [c.amount for c in costs if c.currency == "epsilon"]
    return Loss(
        epsilon=sum(epsilons, ZERO),
        rho=sum((c.amount for c in costs if c.currency == "rho"), ZERO),
        converted=sum((epsilon * epsilon for epsilon in epsilons), ZERO) / 2,
        delta=sum((c.delta for c in costs if c.delta), ZERO),
    )


def _check(cost: object) -> None:
    if not isinstance(cost, Cost):
        raise SpecError(f"a cost is of type {type(cost).__name__}", needed="a Cost")
    if cost.currency not in ("epsilon", "rho"):
        raise SpecError(f"a cost is stated in '{cost.currency}'", needed="epsilon or rho")
    for name, value in (("amount", cost.amount), ("delta", cost.delta)):
        if not isinstance(value, Fraction):
            raise SpecError(f"the {name} of a cost is of type {type(value).__name__}", needed="a Fraction")
        if value < 0:
            raise SpecError(f"the {name} of a cost is negative", needed="zero or more")


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
