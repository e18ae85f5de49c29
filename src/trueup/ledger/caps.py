"""Caps in their written form: numbers in Python, and `epsilon=1` on a command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trueup.errors import BudgetError, SpecError
from trueup.ledger.request import Owner
from trueup.ledger.state import State
from trueup.ledger.totals import Caps
from trueup.noise.rational import rational

CURRENCIES = ("epsilon", "rho", "delta")
CapsGiven = Mapping[str, Any]
"""Caps as people write them: `{"epsilon": "1", "delta": "1e-9"}`."""


def parse_caps(texts: Iterable[str]) -> dict[str, str]:
    """Read caps of the form `CURRENCY=AMOUNT`.

    Examples
    --------
    >>> parse_caps(["epsilon=1", "rho=1/2"])
    {'epsilon': '1', 'rho': '1/2'}
    """
    caps: dict[str, str] = {}
    for text in texts:
        currency, equals, amount = text.partition("=")
        if not equals or not currency or not amount:
            raise SpecError(f"the cap '{text}' cannot be read", needed="CURRENCY=AMOUNT, such as epsilon=1")
        if currency in caps:
            raise SpecError(f"the cap '{text}' is given twice")
        caps[currency] = amount
    return caps


def parse_analyst_caps(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Read caps of the form `NAME:CURRENCY=AMOUNT`.

    Examples
    --------
    >>> parse_analyst_caps(["ana:epsilon=1/2", "ana:rho=1"])
    {'ana': {'epsilon': '1/2', 'rho': '1'}}
    """
    by_name: dict[str, list[str]] = {}
    for text in texts:
        name, colon, cap = text.partition(":")
        if not colon:
            raise SpecError(f"the cap '{text}' names no analyst", needed="NAME:CURRENCY=AMOUNT")
        by_name.setdefault(name, []).append(cap)
    return {name: parse_caps(caps) for name, caps in by_name.items()}


def read_caps(given: CapsGiven) -> Caps:
    """Read caps per currency; raise SpecError if one cannot be read."""
    if not isinstance(given, Mapping) or not given:
        raise SpecError("no caps are given", needed='such as {"epsilon": "1"}')
    return {_currency(name): rational(amount, f"the cap in {name}") for name, amount in given.items()}


def _currency(given: object) -> str:
    if isinstance(given, str) and given in CURRENCIES:
        return given
    shown = f"'{given}'" if isinstance(given, str) else f"of type {type(given).__name__}"
    raise SpecError(f"a currency is {shown}", needed=f"one of {', '.join(CURRENCIES)}")


def new_caps(state: State, owner: Owner, given: Caps) -> dict[str, str]:
    """Return the caps that are not yet in the ledger, as text."""
    known = state.caps.get(owner, {})
    for currency, amount in given.items():
        if known.get(currency, amount) != amount:
            raise BudgetError(
                f"dataset '{owner[0]}' has another cap in {currency}",
                needed="the cap that was declared first: caps are added, never changed",
            )
        if known and currency not in known:
            raise BudgetError(
                f"dataset '{owner[0]}' has no cap in {currency}, and others were declared before",
                needed="the currencies that were declared first: a cap of another one would grant more than they do",
                remedy="begin another account, or ask for what has a cap",
            )
    return {currency: str(amount) for currency, amount in given.items() if currency not in known}
