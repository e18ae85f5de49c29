"""Requests to the ledger, checked, and in the form in which an entry holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from trueup.errors import SpecError
from trueup.ledger.questions import Question
from trueup.privacy.accountant import Loss

Owner = tuple[str, str | None]
"""Whose cap it is: a dataset's `(name, None)`, or an analyst's share of it `(name, analyst)`."""
AMOUNTS = ("epsilon", "rho", "converted", "delta")
"""What a loss adds up to, each on its own."""


@dataclass(frozen=True)
class Request:
    """A request of a release to the ledger.

    Attributes
    ----------
    dataset, analyst
        Whose caps are charged.
    loss
        For one step of the account's neighbour relation.
    key
        Idempotency key.
    spec
        SHA-256 of the spec's text: what a key is bound to.
    invariants
        What is published exactly.
    questions
        What the run finds out exactly before anything is drawn.
    data
        The keyed fingerprint of the data; None where they cannot be known again.
    joint
        What is known of the changes that its invariants and those published before allow together.
    target
        Where the release goes; whoever holds the claim on it is alive.
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
        """Return the two owners whose caps are charged."""
        return (self.dataset, None), (self.dataset, self.analyst)

    def same_as(self, other: Request) -> bool:
        """Return True if two requests are for the same release, whatever their targets and data."""
        return _bound(self) == _bound(other)


def _bound(request: Request) -> Request:
    return replace(request, key=None, joint=None, target=None, data=None)


def check_request(request: Request) -> None:
    """Refuse a request that no ledger could grant."""
    read_name(request.dataset, "the dataset")
    read_name(request.analyst, "the analyst")
    if request.key is not None:
        read_name(request.key, "the idempotency key")
    if not isinstance(request.loss, Loss):
        raise SpecError(f"a loss is of type {type(request.loss).__name__}", needed="a Loss")
    for name in AMOUNTS:
        amount = getattr(request.loss, name)
        if not isinstance(amount, Fraction) or amount < 0:
            raise SpecError(f"the {name} of a loss is negative or no Fraction", needed="zero or more, exact")


def read_name(given: object, what: str) -> str:
    """Read a nonempty printable name; raise SpecError otherwise."""
    if not isinstance(given, str) or not given.strip():
        raise SpecError(f"{what} has no name", needed="a text that is not empty")
    if len(given) > 200 or not given.isprintable():
        raise SpecError(f"the name of {what.removeprefix('the ')} is too long or not printable")
    return given


_PLAIN = ("dataset", "analyst", "key", "spec", "data", "joint", "target")


def write_request(request: Request) -> dict[str, Any]:
    """Return a request as fields of an entry, with amounts as rational text."""
    plain = {name: getattr(request, name) for name in _PLAIN}
    return plain | {
        "loss": {name: str(getattr(request.loss, name)) for name in AMOUNTS},
        "invariants": [asdict(question) for question in request.invariants],
        "questions": [asdict(question) for question in request.questions],
    }


def read_request(given: Mapping[str, Any]) -> Request:
    """Read a request from the fields of an entry."""
    plain = {name: given[name] for name in _PLAIN}
    loss = {name: Fraction(given["loss"][name]) for name in AMOUNTS}
    return Request(
        **plain,
        loss=Loss(epsilon=loss["epsilon"], rho=loss["rho"], converted=loss["converted"], delta=loss["delta"]),
        invariants=tuple(Question(**q) for q in given["invariants"]),
        questions=tuple(Question(**q) for q in given["questions"]),
    )
