"""Entries of format 1: caps and losses of two kinds, without unit or relation. They are read, shown and carried over.

A loss of kind `dp` was stated for one step of the relation of its own spec. A loss of kind `invariant` was stated for one
change that keeps the release's invariants; it is never below that of one step: a step changes no more counts of a query
than a move does, and no query that such a change left alone was measured at a cost of zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from trueup.errors import BudgetError
from trueup.ledger.request import Owner, Request
from trueup.noise.cost import Cost
from trueup.privacy.accountant import Loss, compose

Kind = str
"""`dp` or `invariant`."""
Caps = dict[str, Fraction]
"""Largest total per currency: `epsilon`, `rho`, `delta`."""


@dataclass
class Format1:
    """What entries of format 1 add up to, for datasets that no `adopt` has carried over yet.

    Attributes
    ----------
    caps, spent
        Per owner and kind of guarantee.
    """

    caps: dict[tuple[Owner, Kind], Caps] = field(default_factory=dict)
    spent: dict[tuple[Owner, Kind], Loss] = field(default_factory=dict)

    @property
    def datasets(self) -> list[str]:
        """Datasets that have caps here."""
        return sorted({owner[0] for owner, _ in self.caps})

    def declare(self, fields: Mapping[str, Any]) -> None:
        """Read an entry of caps; ValueError if one is declared twice."""
        for kind, given in fields["caps"].items():
            known = self.caps.setdefault(((fields["dataset"], fields["analyst"]), kind), {})
            add_caps(known, given)

    def charge(self, request: Request) -> None:
        """Add a reservation.

        Raises
        ------
        BudgetError
            If it passes a cap.
        """
        for owner in request.owners:
            at = (owner, request.kind)
            self.spent[at] = self.spent.get(at, Loss()) + request.loss
            for currency, cap in self.caps.get(at, {}).items():
                if spent_in(currency, self.spent[at]) > cap:
                    raise BudgetError(f"more {currency} ('{request.kind}') than the cap {cap}")

    def carry(self, dataset: str) -> tuple[dict[Owner, Caps], dict[Owner, Loss]]:
        """Take a dataset out, as one currency: caps of kind `dp` go on, and everything spent counts against them.

        Where a currency has a cap of kind `invariant` alone, that one goes on.
        """
        caps: dict[Owner, Caps] = {}
        spent: dict[Owner, Loss] = {}
        for kind in ("dp", "invariant"):
            for owner, kind_ in [at for at in self.caps if at[0][0] == dataset and at[1] == kind]:
                caps[owner] = self.caps.pop((owner, kind_)) | caps.get(owner, {})
            for owner, kind_ in [at for at in self.spent if at[0][0] == dataset and at[1] == kind]:
                spent[owner] = spent.get(owner, Loss()) + self.spent.pop((owner, kind_))
        return caps, spent


def read_request_1(fields: Mapping[str, Any]) -> Request:
    """Read a request from the fields of an entry of format 1."""
    costs = (Cost(c["currency"], Fraction(c["amount"]), Fraction(c["delta"])) for c in fields["costs"])
    names = {name: fields[name] for name in ("dataset", "analyst", "key", "kind")}
    return Request(**names, loss=compose(costs))


def add_caps(known: Caps, given: Mapping[str, str]) -> None:
    """Add caps as they stand in an entry; ValueError if one is declared twice."""
    if set(known) & set(given):
        raise ValueError
    known.update({currency: Fraction(amount) for currency, amount in given.items()})


def spent_in(currency: str, loss: Loss) -> Fraction:
    """What a loss takes from a cap in a currency; a rho cap is charged for everything."""
    return {"epsilon": loss.epsilon, "rho": loss.zcdp, "delta": loss.delta}[currency]
