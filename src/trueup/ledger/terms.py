"""Terms of an account: one unit, one neighbour relation, and what its releases may publish and check.

A loss is stated for one unit and for one step of one relation. Losses of other units, or of other relations, are losses
of other things: their sum says nothing. So an account has one of each, from its first entry on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from trueup.errors import SpecError, did_you_mean
from trueup.ledger.questions import Question, invariants, questions
from trueup.ledger.request import read_name
from trueup.model.cells import Cells
from trueup.model.spec import Spec

Neighbours = Literal["add-remove", "replace"]
CHECKS = 3
"""How many rules that are not listed an account answers, unless told otherwise."""


@dataclass(frozen=True)
class Terms:
    """The terms of an account.

    Attributes
    ----------
    unit
        Who is protected: person, household, ...
    neighbours
        One step: `add-remove`, a unit that only one of two databases holds, or `replace`, one with other data.
    invariants
        What releases may publish exactly, by name, with the digest of what it means: its table, columns, conditions, places.
    checks
        How many distinct rules beside the listed ones may be checked on confidential counts.
    listed
        Questions whose answer costs nothing.
    renews
        `yearly`: caps are those of a calendar year (UTC), and losses of all years add up. By default caps are for good.
    series
        `monthly`: the first data that are known in a month are the account's without another declaration, with checks of
        their own. By default its keeper declares all data after the first.
    public
        Columns of the table whose values are public: specs may take their places from them.

    Raises
    ------
    SpecError
        If one of them cannot be read.

    Examples
    --------
    >>> Terms("person", "replace").checks
    3
    """

    unit: str
    neighbours: Neighbours
    invariants: Mapping[str, str] = field(default_factory=dict)
    checks: int = CHECKS
    listed: tuple[Question, ...] = ()
    renews: Literal["", "yearly"] = ""
    series: Literal["", "monthly"] = ""
    public: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read_name(self.unit, "the unit")
        for name, digest in self.invariants.items():
            if not digest:
                raise SpecError(
                    f"the invariant '{read_name(name, 'the invariant')}' is declared by its name alone",
                    needed="its meaning: table, columns, conditions and places, or any column could be published under the name",
                    remedy="list a spec that publishes it: --list SPEC, in Python Terms.listing",
                )
        if self.neighbours not in get_args(Neighbours):
            raise SpecError(
                f"there is no neighbour relation '{self.neighbours}'",
                needed=f"one of {', '.join(get_args(Neighbours))}",
                remedy=did_you_mean(self.neighbours, get_args(Neighbours)),
            )
        if not isinstance(self.checks, int) or isinstance(self.checks, bool) or self.checks < 0:
            raise SpecError("the number of checks is not a whole number of at least 0")
        for what, given, known in (
            ("caps renew", self.renews, "yearly"),
            ("the series of data is", self.series, "monthly"),
        ):
            if given not in ("", known):
                raise SpecError(f"{what} '{given}'", needed=f"'{known}', or nothing")

    def listing(self, spec: Spec, cells: Cells) -> Terms:
        """Return terms that also list the rules and invariants of a spec, by their meaning, and its public columns."""
        named = {question.text: question.digest for question in invariants(spec, cells)}
        return replace(
            self,
            invariants={**self.invariants, **named},
            listed=tuple(dict.fromkeys((*self.listed, *questions(spec, cells)))),
            public=tuple(dict.fromkeys((*self.public, *keys_taken(spec)))),
        )

    def plain(self) -> dict[str, Any]:
        """Return the terms as fields of an entry."""
        return {**asdict(self), "invariants": dict(self.invariants), "listed": write_questions(self.listed)}


def terms_of(fields: Mapping[str, Any]) -> Terms:
    """Read terms from the fields of an entry."""
    return Terms(
        fields["unit"],
        fields["neighbours"],
        fields["invariants"],
        fields["checks"],
        read_questions(fields["listed"]),
        fields["renews"],
        fields["series"],
        tuple(fields.get("public", ())),
    )


def keys_taken(spec: Spec) -> tuple[str, ...]:
    """Return the columns of the confidential table that a spec reads its places from, before any check is counted."""
    return place_columns(spec) if spec.table.keys == "public" else ()


def place_columns(spec: Spec) -> tuple[str, ...]:
    """Return the columns that a spec reads its places from."""
    columns = [column for level in spec.levels for column in (level.column, level.label)]
    columns += [spec.parents.id, spec.parents.parent] if spec.parents else []
    return tuple(dict.fromkeys(filter(None, columns)))


def write_questions(given: Iterable[Question]) -> list[dict[str, str]]:
    """Return questions in the form in which an entry holds them."""
    return [asdict(question) for question in given]


def read_questions(given: Iterable[Mapping[str, str]]) -> tuple[Question, ...]:
    """Read questions from an entry."""
    return tuple(Question(**question) for question in given)
