"""Privacy losses as exact fractions: their composition, conversion and tight bounds.

Losses add: pure epsilons, zCDP rhos (Bun and Steinke, 2016, Lemma 2.3) and deltas, each over
levels, queries and releases. Fractions make the sum independent of order and grouping, and ten
times a tenth exactly one; rounded floats would not. A pure epsilon also counts as
`rho = epsilon^2 / 2` (Bun and Steinke, Proposition 1.4), so that one rho can bound everything.
With a delta the same holds outside an event of probability delta (section 8 there).

Epsilon at a delta of a release, from its noise, tight up to rounding.

A part is noise of one law on counts of which one step of the neighbour relation moves a few. Its exact loss is that of
independent counts, each moved as far as it can be. What draws a whole vector at once is known by its price alone, and is taken
for the randomised response of that price.

What is composed here is what one spec asks for, laid down before anything is drawn. Releases that are chosen one after the other,
with an eye on what the last one gave, are composed by their epsilon, rho and delta, which bound them whatever is chosen next
(Whitehouse, Ramdas, Rogers and Wu, 2023, "Fully-adaptive composition in differential privacy").
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import isfinite

from trueup.errors import PrivacyError, SpecError
from trueup.noise.law import Cost, Law, Sensitivity
from trueup.noise.losses import Losses, pure_losses
from trueup.privacy.contribution import Reach, Relation

ZERO = Fraction(0)
AMOUNTS = ("epsilon", "rho", "converted", "delta")
"""Amounts of a loss that are summed, each on its own."""


@dataclass(frozen=True)
class Loss:
    """The composed privacy loss between neighbouring databases, in epsilon and in rho.

    Attributes
    ----------
    epsilon
        Sum of the losses stated in pure epsilon.
    rho
        Sum of the losses stated in zCDP rho.
    converted
        Sum of epsilon^2 / 2 over the losses stated in epsilon: what they amount to in rho.
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
        return Loss(*(getattr(self, name) + getattr(other, name) for name in AMOUNTS))

    def __sub__(self, other: Loss) -> Loss:
        """Return this loss minus another one that is part of it."""
        left = {name: getattr(self, name) - getattr(other, name) for name in AMOUNTS}
        if min(left.values()) < 0:
            raise PrivacyError(
                "the privacy loss that is subtracted was not part of the sum",
                remedy="report this as an error in trueup",
            )
        return replace(self, **left)

    @property
    def zcdp(self) -> Fraction:
        """Return the whole loss as rho (zCDP)."""
        return self.rho + self.converted

    def at_delta(self, delta: Fraction) -> Fraction:
        """Return an upper bound on epsilon at `delta` for the whole loss.

        Examples
        --------
        >>> float(compose([Cost("rho", Fraction(1))]).at_delta(Fraction(1, 10**10)))
        10.0...
        """
        from trueup.arrays.losses import epsilon_of  # slow to import

        left = delta - self.delta
        if left == 0 and not self.rho:
            return self.epsilon
        if left <= 0:
            raise PrivacyError(
                "the delta of the noise itself is not below the requested delta",
                needed=f"a delta above {outward(self.delta)}",
            )
        # Either keep the pure parts as they are, or read everything in rho: both bound the loss.
        mixed = self.epsilon + (epsilon_of(self.rho, left) if self.rho else ZERO)
        return min(mixed, epsilon_of(self.zcdp, left)) if self.zcdp else ZERO


def compose(costs: Iterable[Cost]) -> Loss:
    """Return the sum of the costs of all queries between two neighbouring databases.

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
        raise SpecError(f"a {type(cost).__name__} is given as a cost", needed="a `Cost`")
    if cost.currency not in ("epsilon", "rho"):
        raise SpecError(f"a cost is given in '{cost.currency}'", needed="a cost in epsilon or rho")
    for name, value in (("amount", cost.amount), ("delta", cost.delta)):
        if not isinstance(value, Fraction):
            raise SpecError(
                f"the {name} of a cost is of type {type(value).__name__}", needed="an exact Fraction"
            )
        if value < 0:
            raise SpecError(f"the {name} of a cost is negative", needed="a Fraction of zero or more")


DIGITS = 4
"""Significant digits of a figure, unless told otherwise."""


def outward(amount: Fraction | float, digits: int = DIGITS) -> str:
    """Return a privacy loss as text, rounded up to a few significant digits.

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


CUT = Fraction(1, 10**12)
"""Share of delta that large losses of normal noise may take, which count as infinite."""


@dataclass(frozen=True)
class NoisePart:
    """Noise of one law on several counts, and how much they change between neighbouring databases.

    Attributes
    ----------
    law
        Law of the noise.
    cost
        Privacy cost of the noise.
    cells, each
        Number of counts that change, and the largest change of each; no counts where that is not known.

    Examples
    --------
    >>> from trueup.noise import DiscreteGaussian
    >>> NoisePart.of(DiscreteGaussian("50"), cells=2, each=1).cost.amount
    Fraction(1, 50)
    """

    law: Law
    cost: Cost
    cells: int = 0
    each: int = 0

    @classmethod
    def of(cls, law: Law, cells: int, each: int) -> NoisePart:
        """Return noise on independent counts, of which `cells` change by at most `each`."""
        return cls(law, law.cost(Sensitivity.of(cells, each)), cells, each)

    @classmethod
    def reached(cls, law: Law, reach: Reach, relation: Relation, *, cells: int) -> NoisePart:
        """Return noise on `cells` counts, to which one unit contributes at most `reach`."""
        cost = law.cost(reach.sensitivity(relation, cells=cells))
        moves = None if law.joint else reach.moves(relation, cells=cells)
        return cls(law, cost, *(moves or (0, 0)))

    def scaled(self, factor: Fraction) -> NoisePart:
        """Return the same noise with `factor` times the cost."""
        cost = replace(self.cost, amount=self.cost.amount * factor)
        return replace(self, law=self.law.scaled(factor), cost=cost)

    @property
    def bounded(self) -> bool:
        """Return True if the distribution of the noise's privacy loss is known."""
        return bool(self.cells) or self.cost.currency == "epsilon" or not self.cost.amount


def tight_epsilon(parts: Iterable[NoisePart], delta: Fraction) -> Fraction:
    """Return an upper bound on epsilon at `delta` for several noises, from their loss distributions.

    Parameters
    ----------
    parts
        The noise.
    delta
        Above the deltas of the parts together, below one.

    Raises
    ------
    PrivacyError
        If `delta` does not exceed the deltas of the parts.

    Examples
    --------
    >>> from trueup.noise import DiscreteGaussian
    >>> parts = [NoisePart.of(DiscreteGaussian("50"), cells=1, each=1)] * 5
    >>> delta = Fraction(1, 10**6)
    >>> exact = compose(part.cost for part in parts)
    >>> print(f"{float(tight_epsilon(parts, delta)):.4f} {float(exact.at_delta(delta)):.4f}")
    1.3674 1.4716
    """
    parts = tuple(parts)
    summed = compose(part.cost for part in parts).at_delta(delta)
    if not all(part.bounded for part in parts):
        return summed
    found = _epsilon(frozenset(_kinds(parts).items()), delta)
    return min(summed, Fraction(found)) if isfinite(found) else summed


Kind = tuple[Law, int] | Cost


def _kinds(parts: Iterable[NoisePart]) -> Counter[Kind]:
    """Return the number of counts that change under each law, and the parts with a known cost only."""
    found: Counter[Kind] = Counter()
    for part in parts:
        if part.cells:
            found[part.law, part.each] += part.cells
        elif part.cost.amount or part.cost.delta:
            found[part.cost] += 1
    return found


@lru_cache(maxsize=256)
def _epsilon(kinds: frozenset[tuple[Kind, int]], delta: Fraction) -> float:
    from trueup.privacy.composition import composed_epsilon

    number = sum(count for _, count in kinds)
    cut = float(delta * CUT / max(number, 1))
    steps = [(_losses(kind, cut), count) for kind, count in kinds]
    return composed_epsilon(sorted(steps, key=lambda step: (step[0].spacing, step[0].least)), delta)


def _losses(kind: Kind, cut: float) -> Losses:
    if isinstance(kind, Cost):
        return pure_losses(kind.amount, kind.delta)
    law, each = kind
    return law.losses(each, cut)
