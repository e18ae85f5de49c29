"""The state of a ledger: the sum of its entries, each checked against the chain, the terms and the caps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from trueup.digits import rational
from trueup.errors import BudgetError, SpecError
from trueup.ledger.admission import admit
from trueup.ledger.entries import Entry, broken, check_links
from trueup.ledger.request import Owner, Request, read_request, terms_of
from trueup.ledger.totals import Caps, Commit, Shown, Totals
from trueup.privacy import Loss


class State(Totals):
    """The totals of the entries read so far, to which further entries are added."""

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
            except (KeyError, TypeError, AttributeError, ValueError, StopIteration) as error:
                detail = f"cannot be true ({error})" if isinstance(error, BudgetError) else "cannot be read"
                raise broken(entry.number, detail) from None
            self.number, self.head = entry.number, entry.hash
            self.signed = "signed" in entry.fields
            self.hashes[entry.number] = entry.hash

    def _open(self, entry: Entry) -> None:
        if entry.number != 1 or entry.fields["format"] != 2:
            raise ValueError
        self.ledger = entry.fields["ledger"]

    def _account(self, entry: Entry) -> None:
        dataset = entry.fields["dataset"]
        if dataset in self.terms:
            raise ValueError
        self.terms[dataset], self.shown[dataset] = terms_of(entry.fields), Shown()

    def _cap(self, entry: Entry) -> None:
        fields = entry.fields
        if fields["dataset"] not in self.terms:
            raise ValueError
        _add_caps(self.caps.setdefault((fields["dataset"], fields["analyst"]), {}), fields["caps"])

    def _reserve(self, entry: Entry) -> None:
        fields = entry.fields
        name = fields["reservation"]
        if name in self.reserved and name not in self.returned:
            raise ValueError
        request = read_request(fields)
        admit(self, request, fields["time"])
        self._charge(name, request, fields["time"])
        self.returned.discard(name)
        self.reserved[name] = (entry, request)

    def _charge(self, name: str, request: Request, when: str) -> None:
        self._turn(request.dataset, when)
        self.charged[name] = self.years.get(request.dataset, "")
        for owner in request.owners:
            self.spent[owner] = self.spent.get(owner, Loss()) + request.loss
        shown = self.shown[request.dataset]
        if request.data is not None and request.data not in shown.data:
            shown.data.append(
                request.data
            )  # the first data that are known, of a series in each month, are the account's
            shown.month = when[:7]
        answers = shown.of(request)
        answers.reserve(name, answers.new(request.questions, self.terms[request.dataset].listed))

    def _turn(self, dataset: str, when: str) -> None:
        """Begin a new year of a dataset's caps if these renew yearly and the year has changed."""
        if not self.begins_year(dataset, when):
            return
        for owner in [owner for owner in self.spent if owner[0] == dataset]:
            self.earlier[owner] = self.earlier.get(owner, Loss()) + self.spent.pop(owner)
        self.years[dataset] = when[:4]

    def _declare(self, entry: Entry) -> None:
        """Record the fingerprint of another version of an account's data."""
        data = self.shown[entry.fields["dataset"]].data
        if entry.fields["data"] in data:
            raise ValueError
        data.append(entry.fields["data"])

    def _return(self, entry: Entry) -> None:
        name = entry.fields["reservation"]
        request = self._given_back(name)
        self.shown[request.dataset].of(request).end(name)

    def _refuse(self, entry: Entry) -> None:
        """Record that confidential rows were refused because they differ from the spec, which is an exact answer."""
        name, digest = entry.fields["reservation"], entry.fields["named"]
        request = self._given_back(name)
        named = next(q for q in request.questions if q.digest == digest) if digest else None
        self.shown[request.dataset].of(request).refuse(name, named)

    def _given_back(self, name: str) -> Request:
        if not self.is_open(name):
            raise ValueError
        self.returned.add(name)
        request = self.reserved[name][1]
        now = self.charged[name] == self.years.get(request.dataset, "")
        for owner in request.owners:
            (self.spent if now else self.earlier)[owner] -= request.loss
        return request

    def _draw(self, entry: Entry) -> None:
        name = entry.fields["reservation"]
        if not self.is_open(name):
            raise ValueError
        self.drawn.add(name)
        request = self.reserved[name][1]
        shown = self.shown[request.dataset]
        if any(shown.published.get(i.text) != i.digest for i in request.invariants):
            raise ValueError
        shown.of(request).hold(name, request.questions)

    def _publish(self, entry: Entry) -> None:
        """Record the invariants that a release is the first to publish."""
        fields = entry.fields
        shown, allowed = self.shown[fields["dataset"]], self.terms[fields["dataset"]].invariants
        for name, digest in fields["invariants"].items():
            if name in shown.published or allowed[name] != digest:
                raise ValueError
            shown.published[name] = digest
        shown.joint = fields["joint"]

    def _seal(self, entry: Entry) -> None:
        name = entry.fields["reservation"]
        if name not in self.drawn or name in self.sealed or name in self.commits:
            raise ValueError
        self.sealed[name] = entry.fields["seal"]

    def _commit(self, entry: Entry) -> None:
        fields = entry.fields
        reservation = fields["reservation"]
        granted, request = self.reserved[reservation]
        if reservation in self.commits or reservation not in self.drawn or self.finished(request.key):
            raise ValueError
        texts = (fields[name] for name in ("ready", "final", "manifest", "measurements"))
        self.commits[reservation] = Commit(reservation, request, *texts, stamp=self.stamp(granted))


def _add_caps(known: Caps, given: Mapping[str, str]) -> None:
    """Add an entry's caps to those read before; raise ValueError if a unit (such as rho) has a cap already."""
    if set(known) & set(given):
        raise ValueError
    known.update({currency: Fraction(amount) for currency, amount in given.items()})


_ACTIONS = {
    "open": State._open,
    "account": State._account,
    "caps": State._cap,
    "reserve": State._reserve,
    "data": State._declare,
    "return": State._return,
    "refuse": State._refuse,
    "draw": State._draw,
    "invariants": State._publish,
    "seal": State._seal,
    "commit": State._commit,
}


CURRENCIES = ("epsilon", "rho", "delta")
CapsGiven = Mapping[str, Any]
"""Caps as people write them: `{"epsilon": "1", "delta": "1e-9"}`."""


def parse_caps(texts: Iterable[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Read caps given as text: `CURRENCY=AMOUNT` for a dataset, `NAME:CURRENCY=AMOUNT` for an analyst.

    Examples
    --------
    >>> parse_caps(["epsilon=1", "rho=1/2", "ana:epsilon=1/2"])
    ({'epsilon': '1', 'rho': '1/2'}, {'ana': {'epsilon': '1/2'}})
    """
    caps: dict[str, dict[str, str]] = {"": {}}
    for text in texts:
        name, colon, cap = text.rpartition(":")
        currency, equals, amount = cap.partition("=")
        if not (equals and currency and amount) or (colon and not name):
            raise SpecError(
                f"the cap '{text}' cannot be read",
                needed="CURRENCY=AMOUNT, such as epsilon=1, or NAME:CURRENCY=AMOUNT",
            )
        held = caps.setdefault(name, {})
        if currency in held:
            raise SpecError(
                f"the cap '{text}' is given twice",
                needed="one amount for each cap",
                remedy="leave one of them out",
            )
        held[currency] = amount
    return caps.pop(""), caps


def read_caps(given: CapsGiven) -> Caps:
    """Read the amounts of caps by unit (epsilon, rho or delta); raise SpecError if one cannot be read."""
    if not isinstance(given, Mapping) or not given:
        raise SpecError("no cap is given", needed='a cap: --cap epsilon=1, in Python {"epsilon": "1"}')
    return {_currency(name): rational(amount, f"the cap in {name}") for name, amount in given.items()}


def _currency(given: object) -> str:
    if isinstance(given, str) and given in CURRENCIES:
        return given
    shown = f"'{given}'" if isinstance(given, str) else f"of type {type(given).__name__}"
    raise SpecError(f"the unit of a cap is {shown}", needed=f"one of {', '.join(CURRENCIES)}")


def new_caps(state: State, owner: Owner, given: Caps) -> dict[str, str]:
    """Return the given caps that are not yet in the ledger, as text; refuse changed ones."""
    known = state.caps.get(owner, {})
    for currency, amount in given.items():
        if known.get(currency, amount) != amount:
            raise BudgetError(
                f"dataset '{owner[0]}' already has a different cap in {currency}",
                needed="the amount of the declared cap, because caps never change",
            )
        if known and currency not in known:
            raise BudgetError(
                f"dataset '{owner[0]}' has no cap in {currency}, only in other currencies",
                needed="a currency in which a cap was declared; a cap in another one would allow a larger loss",
                remedy="begin another account, or ask for what has a cap",
            )
    return {currency: str(amount) for currency, amount in given.items() if currency not in known}
