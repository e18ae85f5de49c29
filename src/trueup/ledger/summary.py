"""Summaries of a ledger as rows to print and lines to export."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from trueup.errors import BundleError
from trueup.ledger.entries import Entry
from trueup.ledger.state import State
from trueup.ledger.totals import spent_in
from trueup.privacy.accountant import Loss


@dataclass(frozen=True)
class Balance:
    """One cap: how much of it was spent, and how much is left."""

    dataset: str
    analyst: str
    currency: str
    cap: Fraction
    spent: Fraction
    left: Fraction


@dataclass(frozen=True)
class Event:
    """One reservation, and the state of its release."""

    entry: int
    time: str
    dataset: str
    analyst: str
    cost: str
    key: str
    release: str


def balances(state: State) -> list[Balance]:
    """List every cap with what was spent of it.

    Examples
    --------
    >>> balances(State())
    []
    """
    return [
        Balance(owner[0], owner[1] or "", currency, cap, used, cap - used)
        for owner, caps in state.caps.items()
        for currency, cap in caps.items()
        for used in [spent_in(currency, state.spent.get(owner, Loss()))]
    ]


def history(state: State) -> list[Event]:
    """List every reservation in order."""
    return [_event(state, name) for name in state.reserved]


def _event(state: State, name: str) -> Event:
    entry, request = state.reserved[name]
    loss = request.loss
    parts = (("epsilon", loss.epsilon), ("rho", loss.rho), ("delta", loss.delta))
    return Event(
        entry.number,
        entry.fields["time"],
        request.dataset,
        request.analyst,
        ", ".join(f"{currency}={amount}" for currency, amount in parts if amount) or "nothing",
        request.key or "",
        _whereabouts(state, name),
    )


def _whereabouts(state: State, name: str) -> str:
    """Return where a reservation's release is, or why there is none; all but returned ones count as spent."""
    if name in state.commits:
        return state.commits[name].final
    if name in state.returned:
        return "returned: nothing was drawn"
    return "unfinished" if name in state.drawn else "open: nothing was drawn yet"


def write_lines(path: Path, entries: Iterable[Entry]) -> None:
    """Write the bodies of entries to a new file, one line each."""
    try:
        with path.open("x", encoding="ascii") as file:
            file.writelines(f"{entry.body}\n" for entry in entries)
    except OSError as error:
        raise BundleError(f"cannot write '{path}': {error.strerror}", remedy="choose another --out") from None
