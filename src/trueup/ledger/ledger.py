"""The ledger: no noise is drawn before its cost was granted here.

A release goes through five steps: **reserve** the loss; **draw**; **stage** the bundle beside its
target and sync it; **commit**; **rename** into place. A crash before the commit leaves a spent
reservation and nothing published. A crash after it is finished by `recover`, which every next run
calls. The rename comes last, so that nothing is ever published that the ledger does not know.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError
from trueup.files.staging import remove_unheld, sync
from trueup.ledger import publish
from trueup.ledger.caps import CapsGiven, new_caps, read_caps
from trueup.ledger.entries import Entry, link
from trueup.ledger.request import Request, read_arguments, read_name, write_request
from trueup.ledger.state import Commit, State
from trueup.ledger.store import store_at
from trueup.ledger.transaction import Store, Transaction
from trueup.noise.cost import Cost
from trueup.privacy.accountant import Kind


class Ledger:
    """An append-only record of what was spent, durable and safe against concurrent use.

    Examples
    --------
    >>> import tempfile
    >>> url = tempfile.mkdtemp() + "/ledger.db"
    >>> from fractions import Fraction
    >>> ledger = Ledger.create(url)
    >>> ledger.init("survey", {"dp": {"epsilon": "1"}})
    >>> cost = Cost("epsilon", Fraction(3, 5))
    >>> first = ledger.reserve("survey", "ana", "dp", [cost])
    >>> ledger.reserve("survey", "ana", "dp", [cost])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.BudgetError: the release asks dataset 'survey' for more epsilon ('dp') than is left. ...
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._state = State()
        self._lock = threading.RLock()  # the state is shared by the threads of a process

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Open the ledger at a path or URL.

        Raises
        ------
        BudgetError
            If there is none, or it cannot be read.
        """
        ledger = cls.at(url)
        if not ledger.state().number:
            raise _absent()
        return ledger

    @classmethod
    def at(cls, url: str) -> Ledger:
        """Return the ledger at a path or URL unread, for checks that must not stop at damage.

        Raises
        ------
        BudgetError
            If there is none.
        """
        ledger = cls(store_at(url))
        if not ledger._store.exists():
            raise _absent()
        return ledger

    @classmethod
    def create(cls, url: str) -> Ledger:
        """Open the ledger at a path or URL, and make it first if there is none.

        Raises
        ------
        BudgetError
            If it cannot be made or read.
        """
        ledger = cls(store_at(url))
        ledger._store.create()
        with ledger._writing() as book:
            if not book.state.number:
                book.append("open", {"format": 1, "ledger": uuid.uuid4().hex})
        return ledger

    def init(self, dataset: str, caps: CapsGiven, analysts: Mapping[str, CapsGiven] | None = None) -> None:
        """Declare the caps of a dataset and, if wanted, of the analysts who share it.

        Caps are added, never changed: declaring the same again does nothing, declaring another
        value is refused. Once one analyst has a cap, only analysts with a cap may draw.

        Parameters
        ----------
        dataset
            The dataset's declared name.
        caps
            Largest total per kind of guarantee and currency (`epsilon`, `rho`, `delta`).
        analysts
            The same for each analyst.

        Raises
        ------
        SpecError
            If a name, kind, currency or amount cannot be read.
        BudgetError
            If a cap was declared before with another value.
        """
        name = read_name(dataset, "the dataset")
        wanted = {None: read_caps(caps)}
        wanted |= {read_name(a, "the analyst"): read_caps(c) for a, c in (analysts or {}).items()}
        with self._writing() as book:
            for analyst, given in wanted.items():
                if new := new_caps(book.state, (name, analyst), given):
                    book.append("caps", {"dataset": name, "analyst": analyst, "caps": new})

    def reserve(
        self,
        dataset: str,
        analyst: str,
        kind: Kind,
        costs: Iterable[Cost],
        key: str | None = None,
        *,
        name: str | None = None,
    ) -> Reservation:
        """Take a loss out of the budget, for good, before any noise is drawn.

        Parameters
        ----------
        dataset, analyst
            Whose caps are charged.
        kind
            `dp` or `invariant`.
        costs
            What the release costs, part by part.
        key
            Idempotency key. If a release was committed under it, that release is returned in
            `committed` and nothing is charged. An earlier attempt that never committed stays
            spent, and this one is charged anew.
        name
            The reservation's own name, for a run that may be killed and go on: if it stands in the ledger it
            is returned and nothing is charged. It must be random, and whoever gives it must see to it that no
            measurement is drawn twice under it.

        Returns
        -------
        Reservation
            Draw only if its `committed` is None.

        Raises
        ------
        SpecError
            If an argument cannot be read.
        BudgetError
            If a cap does not cover it, if the key belongs to another request, or if the ledger
            cannot be written (a full disk, a read-only file, a broken chain).
        """
        request = read_arguments(dataset, analyst, kind, costs, key)
        with self._writing() as book:
            if name in book.state.reserved:
                return self._standing(book.state, name, request)
            if done := book.state.finished(request.key):
                return Reservation(self, done.reservation, done.stamp, _same(done, request))
            book.state.admit(request)
            name = name or uuid.uuid4().hex
            entry = book.append("reserve", {"reservation": name, **write_request(request)})
            stamp = book.state.stamp(entry)
        return Reservation(self, name, stamp)

    def _standing(self, state: State, name: str, request: Request) -> Reservation:
        """The reservation of a run that goes on."""
        entry, reserved = state.reserved[name]
        if not reserved.same_as(request):
            raise BudgetError("the run's reservation is for another release", remedy="start a new run")
        return Reservation(self, name, state.stamp(entry), state.commits.get(name))

    def state(self) -> State:
        """Read all entries, checking chain and caps, and return their sum.

        Raises
        ------
        BudgetError
            If an entry was altered, or the ledger cannot be read.
        """
        with self._lock, self._store.transaction(writing=False) as transaction:
            self._state.read(transaction.after(self._state.number))
        return self._state

    def entries(self) -> list[Entry]:
        """Read all entries as they stand, unchecked."""
        with self._store.transaction(writing=False) as transaction:
            return transaction.after(0)

    def finished(
        self, dataset: str, analyst: str, kind: Kind, costs: Iterable[Cost], key: str | None
    ) -> Commit | None:
        """Return the release that was committed under a key, if there is one.

        Parameters and errors are those of `reserve`; nothing is charged.
        """
        request = read_arguments(dataset, analyst, kind, costs, key)
        done = self.state().finished(request.key)
        return _same(done, request) if done else None

    def recover(self) -> list[Commit]:
        """Finish the renames that a crash prevented; return the releases this concerned.

        Raises
        ------
        BundleError
            If a committed release cannot be moved into place.
        """
        return [
            commit
            for commit in self.state().commits.values()
            if publish.finish(Path(commit.ready), Path(commit.final))
        ]

    def _sweep(self, final: Path) -> None:
        """Remove what killed runs to a target left ready beside it without having committed it."""
        state = self.state()
        for folder in final.absolute().parent.glob(f".{escape(final.name)}.ready-*"):
            name = folder.name.rpartition("-")[2]
            if name in state.reserved and name not in state.commits:
                remove_unheld(folder)

    @contextmanager
    def _writing(self) -> Iterator[_Book]:
        """Hold the write lock, with the state brought up to date."""
        book = None
        try:
            with self._lock, self._store.transaction(writing=True) as transaction:
                self._state.read(transaction.after(self._state.number))
                book = _Book(self._state, transaction)
                yield book
        except BaseException:
            if book and book.appended:
                self._state = State()  # it holds entries that were rolled back
            raise


@dataclass
class _Book:
    """The ledger under the write lock."""

    state: State
    transaction: Transaction
    appended: bool = False

    def append(self, action: str, fields: dict[str, Any]) -> Entry:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = link(self.state.number + 1, self.state.head, {"action": action, "time": now, **fields})
        self.appended = True
        self.transaction.append(entry)
        self.state.read([entry])
        return entry


@dataclass(frozen=True)
class Reservation:
    """A loss that was taken out of the budget for one release.

    Attributes
    ----------
    ledger, name
        Where it stands.
    stamp
        What the release's manifest must say of the ledger, under `ledger`.
    committed
        The release that was committed under the same key; then nothing may be drawn.
    """

    ledger: Ledger
    name: str
    stamp: Mapping[str, Any]
    committed: Commit | None = None

    def commit(self, staged: str | Path, final: str | Path) -> Commit:
        """Sync a staged bundle, record it for good, and move it into place.

        Parameters
        ----------
        staged
            The finished bundle, on the same file system as its target.
        final
            Where it is published; must not exist, or be an empty folder.

        Raises
        ------
        BundleError
            If the bundle does not carry the reservation's stamp, or the target is occupied.
        BudgetError
            If the reservation or its key was committed before, or the ledger cannot be written.
        """
        staged, final = Path(staged).absolute(), Path(final).absolute()
        self._refuse_second(self.ledger.state())  # before the bundle bears the name that `recover` looks for
        self.ledger._sweep(final)
        fields = publish.describe(staged, self.stamp)
        sync(staged)
        # Under its new name the bundle is out of reach of whoever cleans up the staging folder.
        ready = staged.rename(final.with_name(f".{final.name}.ready-{self.name}"))
        try:
            self._record(ready, final, fields)
        except BaseException:
            if self.name not in self.ledger.state().commits:
                ready.rename(staged)
            raise
        publish.finish(ready, final)
        return self.ledger.state().commits[self.name]

    def _record(self, ready: Path, final: Path, fields: Mapping[str, Any]) -> None:
        with self.ledger._writing() as book:
            self._refuse_second(book.state)
            publish.refuse_taken(final, book.state.ready_for(str(final)))
            places = {"reservation": self.name, "ready": str(ready), "final": str(final)}
            book.append("commit", {**places, **fields})

    def _refuse_second(self, state: State) -> None:
        if self.name not in state.reserved:
            raise BudgetError("the reservation is not in the ledger", remedy="reserve again")
        if self.name in state.commits or state.finished(state.reserved[self.name][1].key):
            raise BudgetError(
                "the reservation, or its key, was committed by another run",
                remedy="use the release that was committed; this draw is discarded and stays spent",
            )


def _absent() -> BudgetError:
    return BudgetError("there is no ledger at the given place", remedy="make one with `trueup budget init`")


def _same(done: Commit, request: Request) -> Commit:
    if not done.request.same_as(request):
        raise BudgetError(
            f"the idempotency key '{request.key}' belongs to another release",
            remedy="use a new key for a new release",
        )
    return done
