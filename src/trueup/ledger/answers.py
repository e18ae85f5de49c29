"""Exact answers that an account has given, for each version of its data.

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

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from trueup.ledger.questions import Question


class Asked(NamedTuple):
    """The new questions of a run: rules, which are counted, and descriptions first of their topic."""

    rules: tuple[Question, ...]
    firsts: tuple[Question, ...]


@dataclass
class Answers:
    """The questions asked of one version of the data.

    Attributes
    ----------
    known
        Whether the data are known again: else nothing that was asked of them counts as answered.
    asked
        Every question that was answered, by digest.
    counted
        What counts against the account's checks: digests of questions, and refusals that were not named.
    held
        The questions that a release went on after: their answer was yes.
    pending
        What open reservations ask anew, by their name.
    """

    known: bool = True
    asked: dict[str, Question] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    held: dict[str, Question] = field(default_factory=dict)
    pending: dict[str, Asked] = field(default_factory=dict)

    def new(self, questions: Iterable[Question], listed: tuple[Question, ...]) -> Asked:
        """Return the questions that are neither listed nor answered before."""
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
        """Return how many checks are left if every open reservation (but one) is refused."""
        waiting = [name for name, asked in self.pending.items() if asked.firsts and name != but]
        return checks - len(self.counted) - len(waiting)

    def reserve(self, name: str, asked: Asked) -> None:
        """Count the rules of a reservation; its descriptions wait for their answers."""
        self.pending[name] = asked
        self.asked |= {q.digest: q for q in asked.rules}
        self.counted |= {self._mark(name, q) for q in asked.rules}

    def hold(self, name: str, questions: Iterable[Question]) -> None:
        """Record that all questions of a reservation were answered yes."""
        asked = self.pending.pop(name)
        self.asked |= {q.digest: q for q in asked.firsts}
        self.held |= {q.digest: q for q in questions}

    def end(self, name: str) -> None:
        """Record that a reservation ended without an answer; what it counted stays counted."""
        self.pending.pop(name, None)

    def price(self, name: str, question: Question) -> int:
        """Return how many checks it costs to name a question in the refusal of a reservation."""
        firsts = self.pending[name].firsts
        return firsts.index(question) + 1 if question in firsts else 0

    def refuse(self, name: str, named: Question | None) -> None:
        """Count a refusal: what was reserved stays counted, and the descriptions that it answers are added."""
        firsts = self.pending.pop(name).firsts
        if named is None:
            self.counted.add(f"refusal {name}")
        elif named in firsts:
            told = firsts[: firsts.index(named) + 1]
            self.asked |= {q.digest: q for q in told}
            self.counted |= {self._mark(name, q) for q in told}

    def _mark(self, name: str, question: Question) -> str:
        return question.digest if self.known else f"{question.digest} {name}"
