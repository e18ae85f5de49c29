"""What a release asks of the ledger, checked, and as it stands in an entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from trueup.errors import SpecError
from trueup.noise.cost import Cost
from trueup.privacy.accountant import Kind, Loss, compose

Owner = tuple[str, str | None]
"""Whose cap it is: a dataset's `(name, None)`, or an analyst's share of it `(name, analyst)`."""


@dataclass(frozen=True)
class Request:
    """What a release asks of the ledger."""

    dataset: str
    analyst: str
    kind: Kind
    costs: tuple[Cost, ...]
    key: str | None = None

    @property
    def owners(self) -> tuple[Owner, Owner]:
        """The two whose caps are charged."""
        return (self.dataset, None), (self.dataset, self.analyst)

    @cached_property
    def loss(self) -> Loss:
        """The composed loss of the costs."""
        return compose(self.costs, self.kind)

    def same_as(self, other: Request) -> bool:
        """Whether two requests ask for the same, in whatever order the costs are named."""

        def plain(r: Request):
            return r.dataset, r.analyst, r.kind, sorted((c.currency, c.amount, c.delta) for c in r.costs)

        return plain(self) == plain(other)


def read_arguments(
    dataset: object, analyst: object, kind: Any, costs: Iterable[Cost], key: object
) -> Request:
    """Check everything about a request that does not depend on the ledger."""
    request = Request(
        read_name(dataset, "the dataset"),
        read_name(analyst, "the analyst"),
        kind,
        tuple(costs),
        None if key is None else read_name(key, "the idempotency key"),
    )
    if not request.costs:
        raise SpecError("a release without costs", needed="at least one cost")
    compose(request.costs, kind)
    return request


def read_name(given: object, what: str) -> str:
    """Read a printable name that is not empty; SpecError otherwise."""
    if not isinstance(given, str) or not given.strip():
        raise SpecError(f"{what} has no name", needed="a text that is not empty")
    if len(given) > 200 or not given.isprintable():
        raise SpecError(f"the name of {what.removeprefix('the ')} is too long or not printable")
    return given


def write_request(request: Request) -> dict[str, Any]:
    """Write a request as fields of an entry; amounts as rational text."""
    costs = [{"currency": c.currency, "amount": str(c.amount), "delta": str(c.delta)} for c in request.costs]
    return {
        "dataset": request.dataset,
        "analyst": request.analyst,
        "kind": request.kind,
        "costs": costs,
        "key": request.key,
    }


def read_request(fields: Mapping[str, Any]) -> Request:
    """Read a request from the fields of an entry."""
    costs = tuple(Cost(c["currency"], Fraction(c["amount"]), Fraction(c["delta"])) for c in fields["costs"])
    return Request(fields["dataset"], fields["analyst"], fields["kind"], costs, fields["key"])
