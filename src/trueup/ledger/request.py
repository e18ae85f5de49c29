"""Requests to the ledger, and the terms of an account.

A loss is stated for one unit and for one step of one relation. Losses of other units, or of other relations, are losses
of other things: their sum says nothing. So an account has one of each, from its first entry on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from trueup.errors import SpecError, did_you_mean
from trueup.ledger.questions import Question, invariants, questions
from trueup.model.cells import Cells
from trueup.model.spec import Spec
from trueup.privacy import AMOUNTS, Loss
from trueup.privacy.contribution import RELATIONS, Relation

Owner = tuple[str, str | None]
"""Whose cap it is: a dataset's `(name, None)`, or an analyst's share of it `(name, analyst)`."""


@dataclass(frozen=True)
class Request:
    """A release's request to the ledger.

    Attributes
    ----------
    dataset, analyst
        Names of the dataset and of the analyst whose caps are charged.
    loss
        For one step of the account's neighbour relation.
    key
        Idempotency key.
    spec
        SHA-256 of the spec's text: what a key is bound to.
    invariants
        The invariants that the release publishes exactly.
    questions
        The questions that the run answers exactly before anything is drawn.
    data
        The keyed fingerprint of the data; None where they cannot be known again.
    joint
        The known figures of the changes that its invariants and those published before allow together.
    target
        The folder of the release; a run that holds the claim on it is alive.
    """

    dataset: str
    analyst: str
    loss: Loss
    key: str | None = None
    spec: str | None = None
    invariants: tuple[Question, ...] = ()
    questions: tuple[Question, ...] = ()
    data: str | None = None
    joint: Mapping[str, Any] | None = None
    target: str | None = None

    @property
    def owners(self) -> tuple[Owner, Owner]:
        """Return the two owners whose caps are charged: the dataset, and the analyst on this dataset."""
        return (self.dataset, None), (self.dataset, self.analyst)

    def same_as(self, other: Request) -> bool:
        """Return True if two requests are for the same release; their targets and data may differ."""
        return _bound(self) == _bound(other)


def _bound(request: Request) -> Request:
    return replace(request, key=None, joint=None, target=None, data=None)


def check_request(request: Request) -> None:
    """Refuse a request that no ledger could grant."""
    read_name(request.dataset, "the dataset")
    read_name(request.analyst, "the analyst")
    if request.key is not None:
        read_name(request.key, "the key")
    if not isinstance(request.loss, Loss):
        raise SpecError(
            f"a {type(request.loss).__name__} is given as the loss",
            needed="a Loss, such as the loss of a measurement",
        )
    for name in AMOUNTS:
        amount = getattr(request.loss, name)
        if not isinstance(amount, Fraction) or amount < 0:
            raise SpecError(
                f"the {name} of a loss is "
                f"{'negative' if isinstance(amount, Fraction) else f'of type {type(amount).__name__}'}",
                needed="an exact Fraction of zero or more",
            )


def read_name(given: object, what: str) -> str:
    """Read a nonempty printable name; raise SpecError otherwise."""
    if not isinstance(given, str) or not given.strip():
        raise SpecError(f"{what} has no name", needed="a text that is not empty")
    if len(given) > 200 or not given.isprintable():
        raise SpecError(
            f"the name of {what.removeprefix('the ')} is {'not printable' if len(given) <= 200 else 'too long'}",
            needed="at most 200 printable characters",
        )
    return given


_PLAIN = ("dataset", "analyst", "key", "spec", "data", "joint", "target")


def write_request(request: Request) -> dict[str, Any]:
    """Return a request as fields of an entry, with amounts as rational text."""
    plain = {name: getattr(request, name) for name in _PLAIN}
    return plain | {
        "loss": {name: str(getattr(request.loss, name)) for name in AMOUNTS},
        "invariants": write_questions(request.invariants),
        "questions": write_questions(request.questions),
    }


def read_request(given: Mapping[str, Any]) -> Request:
    """Read a request from the fields of an entry."""
    plain = {name: given[name] for name in _PLAIN}
    return Request(
        **plain,
        loss=Loss(**{name: Fraction(given["loss"][name]) for name in AMOUNTS}),
        invariants=read_questions(given["invariants"]),
        questions=read_questions(given["questions"]),
    )


DEFAULT_UNLISTED_RULES = 3
"""Unlisted rules that an account answers, unless told otherwise."""


@dataclass(frozen=True)
class Terms:
    """The terms of an account: protected unit, neighbour relation, declared invariants, and allowed checks.

    Attributes
    ----------
    unit
        The protected unit: person, household, ...
    neighbours
        One step: `add-remove`, a unit that only one of two databases holds, or `replace`, one with other data.
    invariants
        The invariants that releases may publish, by name, each with the digest of its table, columns, conditions and places.
    checks
        Number of distinct rules beside the listed ones that may be checked on confidential counts.
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
    neighbours: Relation
    invariants: Mapping[str, str] = field(default_factory=dict)
    checks: int = DEFAULT_UNLISTED_RULES
    listed: tuple[Question, ...] = ()
    renews: Literal["", "yearly"] = ""
    series: Literal["", "monthly"] = ""
    public: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read_name(self.unit, "the unit")
        for name, digest in self.invariants.items():
            if not digest:
                raise SpecError(
                    f"the invariant '{read_name(name, 'the invariant')}' is declared without its meaning",
                    needed="its table, columns, conditions and places; otherwise any column could be published under this name",
                    remedy="list a spec that publishes it, by --list SPEC or by Terms.listing in Python",
                )
        if self.neighbours not in RELATIONS:
            raise SpecError(
                f"there is no neighbour relation '{self.neighbours}'",
                needed=f"one of {', '.join(RELATIONS)}",
                remedy=did_you_mean(self.neighbours, RELATIONS),
            )
        if not isinstance(self.checks, int) or isinstance(self.checks, bool) or self.checks < 0:
            raise SpecError(
                f"{self.checks!r} is given as the number of checks", needed="a whole number, 0 or more"
            )
        for what, given, known in (
            ("renews", self.renews, "yearly"),
            ("series", self.series, "monthly"),
        ):
            if given not in ("", known):
                raise SpecError(
                    f"`{what}` is '{given}', which is not a setting of the ledger",
                    needed=f"'{known}'",
                    remedy=f"correct it, or leave out `{what}`",
                )

    def listing(self, spec: Spec, cells: Cells) -> Terms:
        """Return terms that also list a spec's rules, invariants and public columns."""
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
    """Return the columns of places in the confidential table if a spec declares their keys public; else none."""
    return place_columns(spec) if spec.table.keys == "public" else ()


def place_columns(spec: Spec) -> tuple[str, ...]:
    """Return the columns from which a spec reads its places."""
    columns = [column for level in spec.levels for column in (level.column, level.label)]
    columns += [spec.parents.id, spec.parents.parent] if spec.parents else []
    return tuple(dict.fromkeys(filter(None, columns)))


def write_questions(given: Iterable[Question]) -> list[dict[str, str]]:
    """Return questions in the form of a ledger entry."""
    return [asdict(question) for question in given]


def read_questions(given: Iterable[Mapping[str, str]]) -> tuple[Question, ...]:
    """Read questions from an entry."""
    return tuple(Question(**question) for question in given)
