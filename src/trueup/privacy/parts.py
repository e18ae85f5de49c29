"""Epsilon at a delta of a release, from its noise, tight up to rounding.

A part is noise of one law on counts of which one step of the neighbour relation moves a few. Its exact loss is that of
independent counts, each moved as far as it can be. What draws a whole vector at once is known by its price alone, and is taken
for the randomised response of that price.

What is composed here is what one spec asks for, laid down before anything is drawn. Releases that are chosen one after the other,
with an eye on what the last one gave, are composed by their epsilon, rho and delta, which bound them whatever is chosen next
(Whitehouse, Ramdas, Rogers and Wu, 2023, "Fully-adaptive composition in differential privacy").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import isfinite

from trueup.noise.cost import Cost, Sensitivity
from trueup.noise.law import Law
from trueup.noise.losses import Losses, pure_losses
from trueup.privacy.accountant import compose
from trueup.privacy.contribution import Reach, Relation

CUT = Fraction(1, 10**12)
"""Share of delta that large losses of normal noise may take, which count as infinite."""


@dataclass(frozen=True)
class NoisePart:
    """Noise of one law, and the effect of one step on the counts that it is added to.

    Attributes
    ----------
    law
        Of the noise.
    cost
        What it costs.
    cells, each
        How many counts move, each by at most this much; no counts where that is not known.

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
        """Return noise on independent counts, of which one step moves `cells` by at most `each`."""
        return cls(law, law.cost(Sensitivity.of(cells, each)), cells, each)

    @classmethod
    def reached(cls, law: Law, reach: Reach, relation: Relation, *, cells: int) -> NoisePart:
        """Return noise on `cells` counts that neighbours need not share, with one unit's contribution `reach`."""
        cost = law.cost(reach.sensitivity(relation, cells=cells))
        moves = None if law.joint else reach.moves(relation, cells=cells)
        return cls(law, cost, *(moves or (0, 0)))

    def scaled(self, factor: Fraction) -> NoisePart:
        """Return the same noise at `factor` times its cost; raise SpecError if no cost scales so."""
        cost = replace(self.cost, amount=self.cost.amount * factor)
        return replace(self, law=self.law.scaled(factor), cost=cost)

    @property
    def bounded(self) -> bool:
        """Return True if a distribution bounds its losses; it does not for normal noise on an unknown number of counts."""
        return bool(self.cells) or self.cost.currency == "epsilon" or not self.cost.amount


def tight_epsilon(parts: Iterable[NoisePart], delta: Fraction) -> Fraction:
    """Bound epsilon at `delta` for noise fixed beforehand: never below the true one, nor above that of the sums.

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
    """Return how many counts move under each law, and how many parts are known by their price."""
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
