"""Sums of a ledger's entries: caps, and what was spent, checked and published.

Exact answers that an account has given, for each version of its data.
A question that was answered is free on the same data, and new on others. A description of the table (its columns, places)
that is the first of its topic is free if the answer is yes. All else counts:

    a rule         when the loss is reserved, whether it then holds or not
    a description  where it is refused: one check for each new one up to and including the one that is named
    no name        one check: where naming would take more checks than are left, or what failed is no question

So a run with r new rules that may be refused in one of d ways beside has `2^r` outcomes that cost r checks, and others that
cost r + 1, ..., r + d. As `2^r 2^-r + 2^-(r+1) + ... + 2^-(r+d)` is below 2, answers carry no more bits than checks were counted,
but for one at most in a run whose first descriptions all hold; and each topic has one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from trueup.ledger.entries import GENESIS, Entry
from trueup.ledger.questions import Question
from trueup.ledger.request import Owner, Request, Terms
from trueup.privacy import Loss


class Asked(NamedTuple):
    """The questions of a run that were not asked before: rules, and the first descriptions on each topic."""

    rules: tuple[Question, ...]
    firsts: tuple[Question, ...]


@dataclass
class Answers:
    """The questions that were answered on one version of the data.

    Attributes
    ----------
    known
        True if the data can be recognised again; if not, no question about them counts as answered.
    asked
        Every question that was answered, by digest.
    counted
        The items that count against the account's checks: digests of questions, and refusals that were not named.
    held
        The questions that a release went on after: their answer was yes.
    pending
        The new questions of open reservations, by the reservations' names.
    """

    known: bool = True
    asked: dict[str, Question] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    held: dict[str, Question] = field(default_factory=dict)
    pending: dict[str, Asked] = field(default_factory=dict)

    def new(self, questions: Iterable[Question], listed: tuple[Question, ...]) -> Asked:
        """Return the questions that were neither listed in advance nor answered before."""
        answered = {q.digest for q in listed} | (set(self.asked) if self.known else set())
        described = {q.first for q in (*self.asked.values(), *listed)}
        waiting = [q for asked in self.pending.values() for q in asked.firsts]
        new = {q.digest: q for q in questions if q.digest not in answered}.values()
        rules = tuple(
            q
            for q in new
            if q.is_rule
            or q.first in described
            or any(q.first == other.first and not (self.known and q == other) for other in waiting)
        )
        return Asked(rules, tuple(q for q in new if q not in rules))

    def left(self, checks: int, but: str = "") -> int:
        """Return the number of checks that are left if all other open reservations are refused."""
        waiting = [name for name, asked in self.pending.items() if asked.firsts and name != but]
        return checks - len(self.counted) - len(waiting)

    def reserve(self, name: str, asked: Asked) -> None:
        """Count a reservation's rules as asked; its descriptions are counted only when they are answered."""
        self.pending[name] = asked
        self.asked |= {q.digest: q for q in asked.rules}
        self.counted |= {self._mark(name, q) for q in asked.rules}

    def hold(self, name: str, questions: Iterable[Question]) -> None:
        """Record that the data answered all questions of a reservation with yes."""
        asked = self.pending.pop(name)
        self.asked |= {q.digest: q for q in asked.firsts}
        self.held |= {q.digest: q for q in questions}

    def end(self, name: str) -> None:
        """Record that a reservation ended without an answer; questions that were counted stay counted."""
        self.pending.pop(name, None)

    def price(self, name: str, question: Question) -> int:
        """Return the number of checks that a refusal uses up if it names a question."""
        firsts = self.pending[name].firsts
        return firsts.index(question) + 1 if question in firsts else 0

    def refuse(self, name: str, named: Question | None) -> None:
        """Record a refusal: count the descriptions that it answers, or the refusal itself if it names no question."""
        firsts = self.pending.pop(name).firsts
        if named is None:
            self.counted.add(f"refusal {name}")
        elif named in firsts:
            told = firsts[: firsts.index(named) + 1]
            self.asked |= {q.digest: q for q in told}
            self.counted |= {self._mark(name, q) for q in told}

    def _mark(self, name: str, question: Question) -> str:
        return question.digest if self.known else f"{question.digest} {name}"


Caps = dict[str, Fraction]
"""Largest total per currency: `epsilon`, `rho`, `delta`."""


@dataclass(frozen=True)
class Commit:
    """A release that the ledger has granted permanently.

    Attributes
    ----------
    reservation, request
        The reservation and the request for which it was granted.
    ready, final
        The folder in which the bundle waited, and the one in which it is published.
    manifest, measurements
        SHA-256 of its public manifest, and the digest of the measurements that this states.
    stamp
        The ledger's entry in its manifest.
    """

    reservation: str
    request: Request
    ready: str
    final: str
    manifest: str
    measurements: str | None
    stamp: Mapping[str, Any]


@dataclass
class Shown:
    """The exact answers that releases of an account have revealed.

    Attributes
    ----------
    data
        The fingerprints of its data, from the first version to the last.
    month
        When the last version came that its keeper did not declare: year and month.
    answers
        The answers about each version of the data; those about unrecognisable data are under an empty name.
    published
        Invariants that were published, by name, with the digest of their meaning.
    joint
        The figures of the changes that published invariants allow together, from the last entry that states them.
    """

    data: list[str] = field(default_factory=list)
    month: str = ""
    answers: dict[str, Answers] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    joint: Mapping[str, Any] | None = None

    def of(self, request: Request) -> Answers:
        """Return the answers about the version of the data that a request states."""
        return self.answers.setdefault(request.data or "", Answers(known=request.data is not None))

    @property
    def counted(self) -> set[str]:
        """Return the marks of all counted answers, about any version of the data."""
        return {f"{data}{mark}" for data, each in self.answers.items() for mark in each.counted}

    @property
    def checked(self) -> int:
        """Return the number of checks of the newest version of the data and of data without a digest."""
        last = dict.fromkeys(["", *self.data[-1:]])
        return sum(len(self.answers[name].counted) for name in last if name in self.answers)

    @property
    def held(self) -> dict[str, Question]:
        """Return the questions that were answered with yes."""
        return {digest: q for each in self.answers.values() for digest, q in each.held.items()}

    def left(self, request: Request, checks: int, but: str = "") -> int:
        """Return the number of checks that are left for a request's data."""
        unknown = "" if request.data is not None else self.data[-1] if self.data else ""
        other = self.answers.get(unknown) if unknown != (request.data or "") else None
        return self.of(request).left(checks, but) - (len(other.counted) if other else 0)


@dataclass
class Totals:
    """The totals of a ledger's entries read so far: caps, losses, answers and published invariants.

    Attributes
    ----------
    number, head
        Number of entries read, and the hash of the last one.
    signed
        True if the last entry holds a signature.
    hashes
        That of every entry, by its number.
    ledger
        The ledger's own random identifier.
    terms
        The terms of each dataset's account.
    caps, spent
        Per owner. An open reservation counts as spent. Where caps renew, `spent` is that of the last year.
    earlier, years, charged
        For caps that renew: the loss of owners before that year, the last year of each dataset, and the year that each
        reservation was charged to.
    shown
        The exact answers that each dataset's releases have shown.
    reserved
        Every reservation: its entry and its request.
    drawn, returned
        The reservations under which drawing began, and those that were returned because it did not.
    sealed
        The seal on what was drawn, by reservation.
    commits
        Every commit, by reservation.
    """

    number: int = 0
    head: str = GENESIS
    signed: bool = False
    hashes: dict[int, str] = field(default_factory=dict)
    ledger: str = ""
    terms: dict[str, Terms] = field(default_factory=dict)
    caps: dict[Owner, Caps] = field(default_factory=dict)
    spent: dict[Owner, Loss] = field(default_factory=dict)
    earlier: dict[Owner, Loss] = field(default_factory=dict)
    years: dict[str, str] = field(default_factory=dict)
    charged: dict[str, str] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)
    reserved: dict[str, tuple[Entry, Request]] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    sealed: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)

    def begins_year(self, dataset: str, when: str) -> bool:
        """Return True if a dataset's caps renew yearly and a charge at the given time begins a new year."""
        return bool(self.terms[dataset].renews) and when[:4] > self.years.get(dataset, "")

    def spent_at(self, owner: Owner, when: str) -> Loss:
        """Return the loss that counts against the caps of an owner at the given time."""
        return Loss() if self.begins_year(owner[0], when) else self.spent.get(owner, Loss())

    def is_open(self, name: str) -> bool:
        """Return True if a reservation is open and nothing was drawn under it."""
        return name in self.reserved and name not in self.drawn and name not in self.returned

    def unfinished(self, dataset: str) -> list[str]:
        """Return the reservations of a dataset that count as spent and have no release."""
        gone = self.returned | set(self.commits)
        return [
            n for n, (_, request) in self.reserved.items() if request.dataset == dataset and n not in gone
        ]

    def analysts(self, dataset: str) -> list[str]:
        """Return the analysts who have caps of their own; if there are any, nobody else may draw."""
        return sorted({o[1] for o in self.caps if o[0] == dataset and o[1] is not None})

    def finished(self, key: str | None) -> Commit | None:
        """Return the release that was committed under a key, if there is one."""
        return next((c for c in self.commits.values() if key is not None and c.request.key == key), None)

    def ready_for(self, final: str) -> list[str]:
        """Return the folders of committed bundles that are still to be renamed to a target."""
        return [c.ready for c in self.commits.values() if c.final == final]

    def stamp(self, entry: Entry) -> dict[str, Any]:
        """Return what a manifest records of a ledger: its identifier, and the number and hash of an entry."""
        return {"ledger": self.ledger, "entry": entry.number, "head": entry.hash}


def spent_in(currency: str, loss: Loss) -> Fraction:
    """Return a privacy loss in the unit of a cap: epsilon, rho (which every loss has) or delta."""
    return {"epsilon": loss.epsilon, "rho": loss.zcdp, "delta": loss.delta}[currency]
