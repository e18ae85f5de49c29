"""Whose budget a run is charged to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trueup.errors import BudgetError, SpecError
from trueup.io.bundle.manifest import read_spec
from trueup.ledger.ledger import Ledger, Reservation
from trueup.ledger.state import Commit
from trueup.model.guarantee import Guarantee
from trueup.noise.cost import Cost


@dataclass(frozen=True)
class Account:
    """A ledger, the analyst who is charged, and the key that makes a run repeatable.

    Attributes
    ----------
    ledger, analyst
        Where the run is charged, and to whom.
    key
        Idempotency key: a second run under it returns the first one's release and draws nothing.
    """

    ledger: Ledger
    analyst: str
    key: str | None = None

    @classmethod
    def open(cls, url: str | None, analyst: str | None, key: str | None) -> Account | None:
        """Open the account that options name, and finish what a crashed run left; None without a ledger.

        Raises
        ------
        SpecError
            If a ledger is given without an analyst, or an analyst or key without a ledger.
        BudgetError
            If the ledger cannot be used.
        """
        if url is None:
            if analyst is not None or key is not None:
                raise SpecError("an analyst or a key is given without a ledger", remedy="add --ledger URL")
            return None
        if analyst is None:
            raise SpecError("a ledger is given without an analyst", remedy="add --analyst NAME")
        ledger = Ledger.open(url)
        ledger.recover()
        return cls(ledger, analyst, key)

    def finished(self, dataset: str, guarantee: Guarantee) -> Commit | None:
        """Return the release that was committed under the key for the same request.

        Raises
        ------
        BudgetError
            If the key belongs to another request, or the ledger cannot be read.
        """
        return self.ledger.finished(dataset, self.analyst, guarantee.kind, costs(guarantee), self.key)

    def holds(self, dataset: str, guarantee: Guarantee, out: Path, spec_text: str) -> bool:
        """Whether the release of a spec stands in a folder already, committed under the key.

        Raises
        ------
        BudgetError
            If the key's release stands elsewhere or is that of another spec.
        """
        done = self.finished(dataset, guarantee)
        if done and Path(done.final) != out.absolute():
            raise BudgetError(
                f"the key's release was committed before; it is in '{done.final}'",
                remedy="give that folder as --out, or a new key for a new release",
            )
        if done and read_spec(out)[0] != spec_text:
            raise BudgetError("the key belongs to a release of another spec", remedy="choose a new key")
        return done is not None

    def reserve(self, dataset: str, guarantee: Guarantee, *, name: str | None = None) -> Reservation:
        """Take the loss of a guarantee out of the budget; draw only afterwards.

        A run that may be killed and go on gives the reservation a `name`; see `Ledger.reserve`.

        Raises
        ------
        BudgetError
            If the ledger does not grant it, or another run committed under the key meanwhile.
        """
        reservation = self.ledger.reserve(
            dataset, self.analyst, guarantee.kind, costs(guarantee), self.key, name=name
        )
        if reservation.committed and reservation.name != name:
            raise BudgetError(
                f"another run released under the key '{self.key}' meanwhile; nothing was drawn or charged",
                remedy="run again to get that release",
            )
        return reservation


def costs(guarantee: Guarantee) -> list[Cost]:
    """What a guarantee costs, part by part."""
    return [Cost(c.currency, c.amount, c.delta) for c in guarantee.charges]
