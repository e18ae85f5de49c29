"""Privacy guarantees: what is protected, at what loss, in words and exact numbers.

One currency: the loss of one step of a neighbour relation, which adds up over queries and releases whatever their
invariants are. Databases that share the invariants are k steps apart for some k, and lose at most k times as much
(k squared times in rho). Source: smooth differential privacy, in Dharangutte, Gao, Gong and Yu, "Integer Subspace
Differential Privacy", Definition 2 and Proposition 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from trueup.errors import PrivacyError
from trueup.noise.law import Cost, Currency
from trueup.privacy import Loss, compose, outward
from trueup.privacy.contribution import Relation


@dataclass(frozen=True)
class Charge:
    """The privacy loss of one query at one level.

    Attributes
    ----------
    query, margin, law
        The measured query and margin, and the name of the law of noise.
    currency, amount, delta
        Loss of one step of the spec's own neighbour relation.
    prices
        Loss of one step of each relation; empty in bundles from before losses were stated per step.
    """

    query: str
    margin: str
    law: str
    currency: Currency
    amount: Fraction
    delta: Fraction = Fraction(0)
    prices: tuple[tuple[Relation, Cost], ...] = ()


@dataclass(frozen=True)
class Change:
    """The smallest change of the cell that is hardest to change, between databases with the same invariants.

    Attributes
    ----------
    moved
        Number of units that leave one cell for another.
    norm
        By how much it moves the finest counts, in L1.
    steps
        Steps of the spec's neighbour relation.
    amount, delta
        The largest loss among the smallest changes of all cells, in the currency of the guarantee.
    smallest
        True if the norm is the least; else it is an upper bound.
    attained
        True if such a change has that loss; else the loss is an upper bound.
    """

    moved: int
    norm: int
    steps: int
    amount: Fraction
    delta: Fraction
    smallest: bool
    attained: bool

    def attains(self, amount: Fraction) -> bool:
        """Return True if the change takes one step and has exactly the given loss."""
        return self.attained and self.steps == 1 and self.amount == amount

    def sentence(self, unit: str, rules: str, currency: Currency) -> str:
        """Return a sentence on the change: how many steps it takes, and its loss."""
        most = "" if self.smallest else "at most "
        bound = "" if self.smallest else " (a proved bound, not known to be the least)"
        delta = f" with delta = {outward(self.delta, 3)}" if self.delta else ""
        return (
            f"The smallest change that {rules} allow in the cell that is hardest to change: {self._words(unit)}, "
            f"{most}{self.steps} step{'s' * (self.steps != 1)}{bound}; it costs "
            f"{'exactly' if self.attained else 'at most'} {currency} = {self.amount}{delta}."
        )

    def _words(self, unit: str) -> str:
        alone = self.norm - 2 * self.moved
        leave = f"{self.moved} {unit}{'s leave' if self.moved > 1 else ' leaves'} one cell for another"
        enter = f"{alone} {unit}{'s enter or leave' if alone > 1 else ' enters or leaves'} a cell"
        return " and ".join(words for words, shown in ((leave, self.moved), (enter, alone)) if shown)


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee of a whole release.

    Attributes
    ----------
    kind
        `invariant` if only databases that share published invariants are compared, `none` if nothing is claimed of
        what others published, else `dp`.
    unit, neighbours
        The protected unit, and the relation whose steps are counted: `add-remove` or `replace`.
    currency, amount, delta
        Total loss of one step: pure epsilon (with delta) or zCDP rho, exact.
    charges
        Its parts.
    sentences
        The guarantee in plain words, for certificates and reports.
    change
        The smallest change that the invariants allow, where there are any and it is known.
    """

    kind: Literal["dp", "invariant", "none"]
    unit: str
    neighbours: str
    currency: Currency
    amount: Fraction
    delta: Fraction
    charges: tuple[Charge, ...]
    sentences: tuple[str, ...]
    change: Change | None = None

    @property
    def line(self) -> str:
        """Return the loss in one line, or a statement that none is claimed."""
        if self.kind == "none":
            return "no guarantee is claimed"
        if not self.charges and self.neighbours not in ("add-remove", "replace"):
            return "protected as its producer states"
        return f"{self.currency} = {self.amount} for one {self.unit}"

    def price(self, relation: Relation) -> Loss:
        """Return the loss of one step of a neighbour relation, which may differ from the spec's."""
        if self.kind == "none":
            raise PrivacyError(
                "these values were perturbed by others, so that no privacy loss of them is known",
                needed="a release that was measured with this package under a spec",
            )
        costs = [cost for charge in self.charges for at, cost in charge.prices if at == relation]
        if len(costs) != len(self.charges):
            known = relation in ("add-remove", "replace")
            raise PrivacyError(
                f"the guarantee does not state its privacy losses under the neighbour relation '{relation}'",
                needed="the loss of each query" if known else "the relation 'add-remove' or 'replace'",
                remedy="measure again, which costs budget again, or add up the losses that its report states"
                if known
                else "give one of these relations",
            )
        return compose(costs)

    def agrees(self, other: Guarantee) -> bool:
        """Return True if two guarantees state the same losses."""
        mine, others = self._losses(), other._losses()
        if not all(charge.prices for charge in (*self.charges, *other.charges)):
            mine, others = mine[:-1], others[:-1]
        return mine == others

    def _losses(self) -> tuple:
        charges = [(c.query, c.margin, c.law, c.currency, c.amount, c.delta) for c in self.charges]
        stated = (self.kind, self.unit, self.neighbours, self.currency, self.amount, self.delta)
        return *stated, charges, [charge.prices for charge in self.charges]


NO_GUARANTEE = Guarantee(
    kind="none",
    unit="not stated",
    neighbours="not stated",
    currency="epsilon",
    amount=Fraction(0),
    delta=Fraction(0),
    charges=(),
    sentences=(
        "Perturbed and published by another producer. No formal privacy guarantee is known, and none is claimed here.",
    ),
)
"""What is known of tables that somebody perturbed without a formal guarantee."""
