"""What the entries of a ledger add up to: caps, what was spent, what was published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from trueup.errors import BudgetError
from trueup.ledger.entries import GENESIS, Entry, broken, check_links
from trueup.ledger.request import Owner, Request, read_request
from trueup.privacy.accountant import Kind, Loss

Caps = dict[str, Fraction]
"""Largest total per currency: `epsilon`, `rho`, `delta`."""


@dataclass(frozen=True)
class Commit:
    """A release that the ledger has granted for good.

    Attributes
    ----------
    reservation, request
        What it was granted for.
    ready, final
        Where the bundle waited, and where it is published.
    manifest, measurements
        SHA-256 of its public manifest, and the digest of the measurements that this states.
    stamp
        What its manifest says of the ledger.
    """

    reservation: str
    request: Request
    ready: str
    final: str
    manifest: str
    measurements: str | None
    stamp: Mapping[str, Any]


@dataclass
class State:
    """The sum of the entries read so far; reading further entries continues it.

    Attributes
    ----------
    number, head
        How many entries were read, and the hash of the last.
    ledger
        The ledger's own random identifier.
    caps, spent
        Per owner and kind of guarantee. An unfinished reservation counts as spent.
    reserved
        Every reservation: its entry and its request.
    commits
        Every commit, by reservation.
    """

    number: int = 0
    head: str = GENESIS
    ledger: str = ""
    caps: dict[tuple[Owner, Kind], Caps] = field(default_factory=dict)
    spent: dict[tuple[Owner, Kind], Loss] = field(default_factory=dict)
    reserved: dict[str, tuple[Entry, Request]] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)

    def read(self, entries: Iterable[Entry]) -> None:
        """Check further entries against the chain and the caps, and add them.

        Raises
        ------
        BudgetError
            If an entry breaks the chain, cannot be read, or grants more than a cap allows.
        """
        entries = list(entries)
        check_links(entries, self.number, self.head)
        for entry in entries:
            try:
                _ACTIONS[entry.fields["action"]](self, entry)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                detail = f"cannot be true ({error})" if isinstance(error, BudgetError) else "cannot be read"
                raise broken(entry.number, detail) from None
            self.number, self.head = entry.number, entry.hash

    def admit(self, request: Request) -> None:
        """Refuse a request that a cap does not cover.

        Raises
        ------
        BudgetError
            If the dataset is unknown, the analyst is not on its list, a currency has no cap, or a
            cap would be exceeded.
        """
        self._known(request)
        for owner in request.owners:
            caps = self.caps.get((owner, request.kind))
            if caps is None and owner[1] is not None and not self.analysts(request.dataset):
                continue
            _within(owner, request, caps or {}, self.spent.get((owner, request.kind), Loss(request.kind)))

    def analysts(self, dataset: str) -> list[str]:
        """Name the analysts who have caps of their own; nobody else may draw once there is one."""
        return sorted({o[1] for o, _ in self.caps if o[0] == dataset and o[1] is not None})

    def finished(self, key: str | None) -> Commit | None:
        """Return the release that was committed under a key, if there is one."""
        return next((c for c in self.commits.values() if key is not None and c.request.key == key), None)

    def ready_for(self, final: str) -> list[str]:
        """Name the waiting folders of everything that was committed for one target."""
        return [c.ready for c in self.commits.values() if c.final == final]

    def stamp(self, entry: Entry) -> dict[str, Any]:
        """Return what a manifest says of the ledger: where in which chain its reservation stands."""
        return {"ledger": self.ledger, "entry": entry.number, "head": entry.hash}

    def _known(self, request: Request) -> None:
        datasets = sorted({o[0] for o, _ in self.caps})
        if request.dataset not in datasets:
            known = ", ".join(datasets) or "none"
            raise BudgetError(
                f"dataset '{request.dataset}' has no cap in this ledger (known: {known})",
                remedy="declare it with `trueup budget init`",
            )
        analysts = self.analysts(request.dataset)
        if analysts and request.analyst not in analysts:
            raise BudgetError(
                f"analyst '{request.analyst}' has no cap on dataset '{request.dataset}'",
                needed=f"one of {', '.join(analysts)}",
                remedy="give the analyst a cap with `trueup budget init --analyst-cap`",
            )

    def _open(self, entry: Entry) -> None:
        if entry.number != 1 or entry.fields["format"] != 1:
            raise ValueError
        self.ledger = entry.fields["ledger"]

    def _cap(self, entry: Entry) -> None:
        fields = entry.fields
        owner = (fields["dataset"], fields["analyst"])
        for kind, caps in fields["caps"].items():
            known = self.caps.setdefault((owner, kind), {})
            if set(known) & set(caps):
                raise ValueError
            known.update({currency: Fraction(amount) for currency, amount in caps.items()})

    def _reserve(self, entry: Entry) -> None:
        request = read_request(entry.fields)
        self.admit(request)
        for owner in request.owners:
            at = (owner, request.kind)
            self.spent[at] = self.spent.get(at, Loss(request.kind)) + request.loss
        self.reserved[entry.fields["reservation"]] = (entry, request)

    def _commit(self, entry: Entry) -> None:
        fields = entry.fields
        reservation = fields["reservation"]
        granted, request = self.reserved[reservation]
        if reservation in self.commits or self.finished(request.key):
            raise ValueError
        texts = (fields[name] for name in ("ready", "final", "manifest", "measurements"))
        self.commits[reservation] = Commit(reservation, request, *texts, stamp=self.stamp(granted))


_ACTIONS = {"open": State._open, "caps": State._cap, "reserve": State._reserve, "commit": State._commit}


def _within(owner: Owner, request: Request, caps: Caps, spent: Loss) -> None:
    """Check one owner's caps. A rho cap also bounds what is stated in epsilon, not conversely."""
    loss, total = request.loss, spent + request.loss
    covered = {"epsilon": "epsilon" in caps or "rho" in caps, "rho": "rho" in caps, "delta": "delta" in caps}
    for currency, wanted in (("epsilon", loss.epsilon), ("rho", loss.rho), ("delta", loss.delta)):
        if wanted and not covered[currency]:
            raise BudgetError(
                f"{_whose(owner)} has no cap in {currency} for guarantees of kind '{request.kind}'",
                remedy="declare one with `trueup budget init`, or ask for what has a cap",
            )
    if request.kind == "invariant" and not caps:
        raise BudgetError(
            f"{_whose(owner)} has no cap for guarantees of kind 'invariant'",
            remedy="declare one with `trueup budget init`: an invariant does not avoid a cap",
        )
    for currency, cap in caps.items():
        if spent_in(currency, total) > cap:
            raise BudgetError(
                f"the release asks {_whose(owner)} for more {currency} ('{request.kind}') than is left",
                needed=f"at most {cap - spent_in(currency, spent)} of the cap {cap}",
                remedy="ask for less, or close the dataset",
            )


def spent_in(currency: str, loss: Loss) -> Fraction:
    """What a loss takes from a cap in a currency; a rho cap is charged for everything."""
    return {"epsilon": loss.epsilon, "rho": loss.zcdp, "delta": loss.delta}[currency]


def _whose(owner: Owner) -> str:
    dataset, analyst = owner
    return f"dataset '{dataset}'" if analyst is None else f"analyst '{analyst}' on dataset '{dataset}'"
