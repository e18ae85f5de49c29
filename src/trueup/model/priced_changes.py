"""Changes between databases, and the loss of each under the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Margin
from trueup.model.kept import Kept
from trueup.noise.law import Cost, Sensitivity
from trueup.privacy import Loss, compose
from trueup.privacy.contribution import Relation


class PricedQuery(NamedTuple):
    """One measured margin: its level, the group of each free combination, how many counts are free, its law."""

    level: int
    group: NDArray[np.int64]
    free: int
    law: Any

    def cost(self, l1: int, l2_squared: int) -> Cost:
        """Return the loss of a change with these norms in the margin."""
        return self.law.cost(Sensitivity(Fraction(l1), Fraction(l2_squared)))


@dataclass(frozen=True, eq=False)
class PricedChanges:
    """The changes between databases that share `kept`, counted in steps of `relation`."""

    kept: Kept
    relation: Relation
    measured: tuple[tuple[Margin, Any], ...]

    @cached_property
    def queries(self) -> tuple[PricedQuery, ...]:
        """Return what is measured, as the search sees it."""
        kept = self.kept
        free = {margin: kept.fixed(margin).free for margin, _ in self.measured}
        return tuple(PricedQuery(kept.level(m), kept.groups(m), free[m], law) for m, law in self.measured)

    @cached_property
    def currencies(self) -> set[str]:
        """Return the currencies in which the laws are priced."""
        return {q.cost(1, 1).currency for q in self.queries}

    def size(self, loss: Loss) -> Fraction:
        """Return a loss as one number: in rho if any law is priced so."""
        return loss.zcdp if "rho" in self.currencies else loss.epsilon

    def steps(self, norm: int) -> int:
        """Return how many steps of the relation a change of that L1 norm takes."""
        return norm if self.relation == "add-remove" else norm // 2

    def bound(self, norm: int) -> Loss:
        """Bound the loss of a change of that norm by the losses of its steps: norms add."""
        k, reach = self.steps(norm), 1 if self.relation == "add-remove" else 2
        touched = ((q, min(reach, q.free)) for q in self.queries)
        return compose(q.cost(k * moved, k * k * moved) for q, moved in touched)
