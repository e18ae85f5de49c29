"""Caps as people write them: in Python, and on a command line as `epsilon=1` or `invariant:rho=1/2`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from trueup.errors import BudgetError, SpecError
from trueup.ledger.request import Owner
from trueup.ledger.state import Caps, State
from trueup.noise.rational import rational
from trueup.privacy.accountant import Kind

T = TypeVar("T")
CapsGiven = Mapping[str, Mapping[str, Any]]
"""Caps as people write them: `{"dp": {"epsilon": "1"}, "invariant": {"rho": "1/2"}}`."""


def parse_caps(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Read caps of the form `[KIND:]CURRENCY=AMOUNT`; the kind is `dp` if it is not named.

    Raises
    ------
    SpecError
        If one is not of that form, or given twice. Kinds, currencies and amounts are checked later.

    Examples
    --------
    >>> parse_caps(["epsilon=1", "invariant:rho=1/2"])
    {'dp': {'epsilon': '1'}, 'invariant': {'rho': '1/2'}}
    """
    caps: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        kind, _, currency = name.rpartition(":")
        if not equals or not currency or not amount:
            raise SpecError(
                f"the cap '{text}' cannot be read", needed="[KIND:]CURRENCY=AMOUNT, such as epsilon=1"
            )
        of_kind = caps.setdefault(kind or "dp", {})
        if currency in of_kind:
            raise SpecError(f"the cap '{text}' is given twice")
        of_kind[currency] = amount
    return caps


def parse_analyst_caps(texts: Iterable[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Read caps of the form `NAME:[KIND:]CURRENCY=AMOUNT`.

    Raises
    ------
    SpecError
        If one is not of that form, or given twice.

    Examples
    --------
    >>> parse_analyst_caps(["ana:epsilon=1/2", "ana:rho=1"])
    {'ana': {'dp': {'epsilon': '1/2', 'rho': '1'}}}
    """
    by_name: dict[str, list[str]] = {}
    for text in texts:
        name, colon, cap = text.partition(":")
        if not colon:
            raise SpecError(f"the cap '{text}' names no analyst", needed="NAME:[KIND:]CURRENCY=AMOUNT")
        by_name.setdefault(name, []).append(cap)
    return {name: parse_caps(caps) for name, caps in by_name.items()}


def read_caps(given: CapsGiven) -> dict[Kind, Caps]:
    """Read caps per kind and currency; SpecError where one cannot be read."""
    if not isinstance(given, Mapping) or not given:
        raise SpecError("no caps are given", needed='such as {"dp": {"epsilon": "1"}}')
    return {
        _one_of(kind, get_args(Kind), "a kind of guarantee"): _kind_caps(caps) for kind, caps in given.items()
    }


def _kind_caps(caps: Any) -> Caps:
    if not isinstance(caps, Mapping) or not caps:
        raise SpecError("no caps are given for a kind of guarantee", needed='such as {"epsilon": "1"}')
    known = ("epsilon", "rho", "delta")
    return {_one_of(c, known, "a currency"): rational(a, f"the cap in {c}") for c, a in caps.items()}


def _one_of(given: object, known: tuple[T, ...], what: str) -> T:
    if given in known:
        return known[known.index(given)]
    shown = f"'{given}'" if isinstance(given, str) else f"of type {type(given).__name__}"
    raise SpecError(f"{what} is {shown}", needed=f"one of {', '.join(map(str, known))}")


def new_caps(state: State, owner: Owner, given: dict[Kind, Caps]):
    """The caps that are not in the ledger yet, as text."""
    new: dict[str, dict[str, str]] = {}
    for kind, caps in given.items():
        known = state.caps.get((owner, kind), {})
        for currency, amount in caps.items():
            if currency not in known:
                new.setdefault(kind, {})[currency] = str(amount)
            elif known[currency] != amount:
                raise BudgetError(
                    f"dataset '{owner[0]}' has another cap in {currency} ('{kind}')",
                    needed="the cap that was declared first: caps are added, never changed",
                )
    return new
