"""What a ledger says, as rows to print and lines to export."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from trueup.errors import BundleError
from trueup.ledger.entries import Entry
from trueup.ledger.state import State, spent_in
from trueup.privacy.accountant import Loss


@dataclass(frozen=True)
class Balance:
    """One cap: what was spent of it, and what is left."""

    dataset: str
    analyst: str
    kind: str
    currency: str
    cap: Fraction
    spent: Fraction
    left: Fraction


@dataclass(frozen=True)
class Event:
    """One reservation, and where its release stands; `unfinished` ones count as spent."""

    entry: int
    time: str
    dataset: str
    analyst: str
    kind: str
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
        Balance(dataset, analyst or "", kind, currency, cap, used, cap - used)
        for ((dataset, analyst), kind), caps in state.caps.items()
        for currency, cap in caps.items()
        for used in [spent_in(currency, state.spent.get(((dataset, analyst), kind), Loss(kind)))]
    ]


def history(state: State) -> list[Event]:
    """List every reservation in order."""
    return [_event(state, name) for name in state.reserved]


def _event(state: State, name: str) -> Event:
    entry, request = state.reserved[name]
    commit = state.commits.get(name)
    loss = request.loss
    parts = (("epsilon", loss.epsilon), ("rho", loss.rho), ("delta", loss.delta))
    cost = ", ".join(f"{currency}={amount}" for currency, amount in parts if amount) or "nothing"
    return Event(
        entry.number,
        entry.fields["time"],
        request.dataset,
        request.analyst,
        request.kind,
        cost,
        request.key or "",
        commit.final if commit else "unfinished",
    )


def write_lines(path: Path, entries: Iterable[Entry]) -> None:
    """Write the bodies of entries to a new file, one line each.

    Raises
    ------
    BundleError
        If the file exists or cannot be written.
    """
    try:
        with path.open("x", encoding="ascii") as file:
            file.writelines(f"{entry.body}\n" for entry in entries)
    except OSError as error:
        raise BundleError(f"cannot write '{path}': {error.strerror}", remedy="choose another --out") from None
