"""The ledger, which charges every loss before confidential counts are read or noise is drawn.

A release goes through seven steps: **reserve** the loss, and all that the run is to find out exactly; **read** and check
the confidential counts; record that **drawing begins**; draw; **stage** the bundle beside its target and sync it;
**commit**; **rename** into place. What ends before drawing begins gives the loss back by an entry, at once or, after a
crash, by the `recover` of the next run. A crash between drawing and commit leaves a spent reservation and nothing
published. A crash after the commit is finished by `recover`. The rename comes last, so that nothing is ever published that
the ledger does not know.

One file: everything that a ledger is asked for, each a few lines and the sentences that say what it promises.
"""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError
from trueup.files.target import is_claimed
from trueup.ledger import reservation as reservations
from trueup.ledger.admission import account_terms, admit, agree
from trueup.ledger.entries import Entry, this_time
from trueup.ledger.keeper import Keeper
from trueup.ledger.request import Request, Terms, check_request, read_name, write_request
from trueup.ledger.reservation import Reservation
from trueup.ledger.state import CapsGiven, State, new_caps, read_caps
from trueup.ledger.store import Store, store_at
from trueup.ledger.stored import StoredLedger
from trueup.ledger.totals import Commit


class Ledger(StoredLedger):
    """An append-only record of what was spent, durable and safe under concurrent use.

    Examples
    --------
    >>> import tempfile
    >>> url = tempfile.mkdtemp() + "/ledger.db"
    >>> from fractions import Fraction
    >>> from trueup.privacy import Loss
    >>> ledger = Ledger.create(url)
    >>> ledger.init("survey", {"epsilon": "1"}, terms=Terms("person", "add-remove"))
    >>> request = Request("survey", "ana", Loss(epsilon=Fraction(3, 5)))
    >>> first = ledger.reserve(request)
    >>> ledger.reserve(request)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.BudgetError: the release asks dataset 'survey' for more epsilon than is left. ...
    >>> first.give_back()
    >>> ledger.reserve(request).name == first.name
    False
    """

    @classmethod
    def open(cls, url: str, keeper: Path | None = None) -> Ledger:
        """Open the ledger at a path or URL; `keeper` is the folder described under `create`.

        Raises
        ------
        BudgetError
            If there is none, or it cannot be read.
        """
        ledger = cls.at(url, keeper)
        if not ledger.state().number:
            raise _absent()
        return ledger

    @classmethod
    def at(cls, url: str, keeper: Path | None = None) -> Ledger:
        """Return the ledger at a path or URL without reading it, for checks of damaged ledgers.

        Raises
        ------
        BudgetError
            If there is none.
        """
        ledger = cls(store := store_at(url), keeper_of(store, keeper))
        if not store.exists():
            raise _absent()
        return ledger

    @classmethod
    def create(cls, url: str, keeper: Path | None = None) -> Ledger:
        """Open the ledger at a path or URL, making it if there is none.

        Parameters
        ----------
        url
            The path or URL of the store.
        keeper
            The folder of what its keeper keeps outside it; see `Keeper`. By default one beside an SQLite file, and none of
            a server.

        Raises
        ------
        BudgetError
            If it cannot be made or read.
        """
        store = store_at(url)
        store.create()
        ledger = cls(store, Keeper.make(folder) if (folder := keeper or store.keeper) else None)
        with ledger.writing() as locked:
            if not locked.state.number:
                locked.append("open", {"format": 2, "ledger": uuid.uuid4().hex})
        return ledger

    def init(
        self,
        dataset: str,
        caps: CapsGiven,
        analysts: Mapping[str, CapsGiven] | None = None,
        *,
        terms: Terms | None = None,
    ) -> None:
        """Declare a dataset's account: its terms, its caps and, optionally, caps of analysts.

        Terms and caps never change: declaring the same again does nothing, declaring another is refused. Caps may be
        added. Once one analyst has a cap, only analysts with a cap may draw.

        Parameters
        ----------
        dataset
            The dataset's declared name.
        caps
            Largest total per currency (`epsilon`, `rho`, `delta`).
        analysts
            The same for each analyst.
        terms
            Unit, neighbour relation, invariants and checks; needed when the account is new.

        Raises
        ------
        SpecError
            If a name, currency or amount cannot be read.
        BudgetError
            If the terms of a new account are missing, or terms or a cap were declared before otherwise.
        """
        name = read_name(dataset, "the dataset")
        wanted = {None: read_caps(caps)}
        wanted |= {read_name(a, "the analyst"): read_caps(c) for a, c in (analysts or {}).items()}
        with self.writing() as locked:
            if new_terms := agree(locked.state, name, terms):
                locked.append("account", {"dataset": name, **new_terms.plain()})
            for analyst, given in wanted.items():
                if new := new_caps(locked.state, (name, analyst), given):
                    locked.append("caps", {"dataset": name, "analyst": analyst, "caps": new})

    def declare(self, dataset: str, data: Any) -> None:
        """Declare a new version of an account's data, such as corrected data."""
        if self.keeper is None:
            raise BudgetError(
                "the ledger has no folder with a secret key, by which data are recognised",
                needed="that folder, which only its owner can read",
                remedy="name it in the variable TRUEUP_KEEPER",
            )
        found = self.keeper.fingerprint(data)
        if not found:
            raise BudgetError(
                "data of this kind cannot be recognised in a later run",
                needed="a dataframe, a file or a folder of files",
                remedy="give --data FILE",
            )
        with self.writing() as locked:
            account_terms(locked.state, read_name(dataset, "the dataset"))
            if found not in locked.state.shown[dataset].data:
                locked.append("data", {"dataset": dataset, "data": found})

    def sign(self) -> None:
        """Sign all later entries with a key of the keeper's folder, so that only its holder can add entries."""
        if self.keeper is None:
            raise BudgetError(
                "entries cannot be signed: the ledger has no keeper's folder",
                needed="a folder for the secret key, which only its owner can read",
                remedy="give its path in the variable TRUEUP_KEEPER",
            )
        with self.writing() as locked:
            self.keeper.sign(locked.state.number + 1)

    def grant(self, analyst: str) -> None:
        """Allow a role of the server to draw in its own name, but not to declare anything.

        Raises
        ------
        BudgetError
            If the ledger is a file, which whoever may draw may write, or the server does not grant it.
        """
        self._store.grant(read_name(analyst, "the analyst"))

    def reserve(self, request: Request, name: str | None = None) -> Reservation:
        """Charge a loss before confidential data are read.

        Parameters
        ----------
        request
            The owners to charge, the cost of the release, and the exact answers that it finds out. If a release was committed
            under its key, that release is returned in `committed` and nothing is charged. An earlier attempt that
            began to draw and never committed stays spent, and this one is charged anew.
        name
            The reservation's own name, for a run that may be killed and go on: if it stands in the ledger it
            is returned and nothing is charged. It must be random, and whoever gives it must see to it that no
            measurement is drawn twice under it.

        Returns
        -------
        Reservation
            Draw only if its `committed` is None, and after its `begin`.

        Raises
        ------
        SpecError
            If the request cannot be read.
        BudgetError
            If the account does not cover it, if the key belongs to another request, or if the ledger
            cannot be written (a full disk, a read-only file, a broken chain).
        """
        check_request(request)
        with self.writing() as locked:
            if name in locked.state.reserved and name not in locked.state.returned:
                return self._standing(locked.state, name, request)
            if done := self._bound(locked.state, request):
                return Reservation(self, done.reservation, done.stamp, done)
            admit(locked.state, request, this_time())
            name = name or uuid.uuid4().hex
            entry = locked.append(
                "reserve", {"reservation": name, "host": this_host(), **write_request(request)}
            )
            stamp = locked.state.stamp(entry)
        return Reservation(self, name, stamp)

    def _standing(self, state: State, name: str, request: Request) -> Reservation:
        """Return the reservation that a run made before it was interrupted; refuse another release."""
        entry, reserved = state.reserved[name]
        if not reserved.same_as(request):
            raise BudgetError(
                "the run reserved its budget for another release",
                needed="the spec, dataset and analyst with which the run began",
                remedy="give them as before, or start a new run",
            )
        return Reservation(self, name, state.stamp(entry), state.commits.get(name))

    def _bound(self, state: State, request: Request) -> Commit | None:
        """Return the release committed under a request's key, and refuse a key of another release."""
        under = [
            n for n, (_, r) in state.reserved.items() if request.key is not None and r.key == request.key
        ]
        for drawn in [state.reserved[name][1] for name in under if name in state.drawn]:
            if not drawn.same_as(request):
                other = "another release" if drawn.spec == request.spec else "a release of another spec"
                raise BudgetError(
                    f"the key '{request.key}' belongs to {other}; nothing was drawn",
                    needed="the spec, dataset and analyst with which the key was first used",
                    remedy="use a new key for a new release",
                )
        return state.finished(request.key)

    def finished(self, request: Request) -> Commit | None:
        """Return the release that was committed under a request's key, if any."""
        check_request(request)
        return self._bound(self.state(), request)

    def recover(self) -> list[Commit]:
        """Complete the publication of this user's bundles after a crash; return the releases.

        Reservations of runs that ended on this machine before they began to draw are given back.

        Raises
        ------
        BundleError
            If a committed release cannot be moved into place.
        """
        state = self.state()
        for name in [name for name in state.reserved if state.is_open(name)]:
            if _ended(*state.reserved[name]):
                with suppress(BudgetError):  # another analyst's, on a server that tells them apart
                    Reservation(self, name, {}).give_back()
        return [
            commit
            for commit in state.commits.values()
            if reservations.finish_publishing(
                Path(commit.ready), Path(commit.final), commit.reservation, commit.manifest
            )
        ]


def keeper_of(store: Store, folder: Path | None) -> Keeper | None:
    """Return the keeper's folder that was given, or the one beside the store if this user may use it."""
    keeper = Keeper.at(folder or store.keeper)
    if folder is None and keeper and not os.access(keeper.folder, os.R_OK | os.W_OK | os.X_OK):
        return None
    if folder is not None and keeper is None:
        raise BudgetError(
            f"there is no keeper's folder '{folder}'", remedy="check the path in the variable TRUEUP_KEEPER"
        )
    return keeper


def _absent() -> BudgetError:
    return BudgetError(
        "there is no ledger at the given place",
        remedy="check the address, or make a ledger with `trueup budget init`",
    )


def this_host() -> str:
    """Return an identifier of the running system; processes on the same system can be seen to be alive."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _ended(entry: Entry, request: Request) -> bool:
    """Return True if a reservation's run certainly ended: it ran on this system, and no process holds its target."""
    if request.target is None or entry.fields["host"] != this_host():
        return False
    return not is_claimed(Path(request.target))
