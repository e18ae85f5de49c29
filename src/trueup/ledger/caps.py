"""Caps as people write them on a command line: `epsilon=1`, `invariant:rho=1/2`, `ana:epsilon=1/3`."""

from __future__ import annotations

from collections.abc import Iterable

from trueup.errors import SpecError


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
