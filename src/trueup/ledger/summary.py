"""Summaries of a ledger, as rows to print and lines to export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from trueup.errors import BundleError
from trueup.ledger.entries import Entry
from trueup.ledger.request import Terms
from trueup.ledger.state import State
from trueup.ledger.totals import Shown, spent_in
from trueup.privacy import Loss


@dataclass(frozen=True)
class Balance:
    """A cap, the amount spent of it, and the amount left."""

    dataset: str
    analyst: str
    currency: str
    cap: Fraction
    spent: Fraction
    left: Fraction


@dataclass(frozen=True)
class Event:
    """A reservation with the state of its release."""

    entry: int
    time: str
    dataset: str
    analyst: str
    cost: str
    key: str
    release: str


def balances(state: State) -> list[Balance]:
    """Return every cap with the amount spent of it.

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
    """Return every reservation with the state of its release, in order."""
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
    """Return the state of a reservation's release: its folder, or the reason why there is none."""
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


def picture(state: State, dataset: str) -> dict[str, Any]:
    """Return the figures of a dataset's account, with sentences that describe them.

    Examples
    --------
    >>> from trueup.ledger.request import Terms
    >>> state = State(terms={"survey": Terms("person", "replace")}, shown={"survey": Shown()})
    >>> picture(state, "survey")["sentences"][1]
    'Questions about the confidential table that were answered exactly: 0 of the 3 that are allowed. ...'
    """
    terms = state.terms[dataset]
    shown, spent = state.shown[dataset], state.spent.get((dataset, None), Loss())
    return {
        "unit": terms.unit,
        "neighbours": terms.neighbours,
        "invariants": list(terms.invariants),
        "published": list(shown.published),
        "joint": shown.joint,
        "renews": terms.renews,
        "series": terms.series,
        "public": list(terms.public),
        "checks": terms.checks,
        "checked": shown.checked,
        "facts": [question.text for question in shown.held.values() if question.is_rule],
        "unfinished": len(state.unfinished(dataset)),
        "sentences": [
            *_protection(dataset, terms, spent),
            *_by_analyst(state, dataset),
            *_over_time(state, dataset, terms),
            *_invariants(terms, shown, spent),
            *_checks(terms, shown),
            *_unfinished(state, dataset),
        ],
    }


_STEP = {"add-remove": "one {unit} more or less", "replace": "one {unit} with other data"}


def _protection(dataset: str, terms: Terms, spent: Loss) -> Iterator[str]:
    yield (
        f"'{dataset}' protects one {terms.unit}. All releases together: {amounts(spent, 1)} for one step, "
        f"{_STEP[terms.neighbours].format(unit=terms.unit)}; K steps cost at most K times epsilon, K x K times rho."
    )
    if terms.public:
        yield f"Columns whose values are public, from which specs may take their places: {', '.join(terms.public)}."


def _by_analyst(state: State, dataset: str) -> Iterator[str]:
    spent = {owner[1]: loss for owner, loss in state.spent.items() if owner[0] == dataset and owner[1]}
    if spent:
        said = (f"{analyst} {amounts(loss, 1)}" for analyst, loss in spent.items())
        yield f"Of that was charged by analyst: {'; '.join(said)}."


def _over_time(state: State, dataset: str, terms: Terms) -> Iterator[str]:
    if terms.renews:
        earlier = amounts(state.earlier.get((dataset, None), Loss()), 1)
        year = state.years.get(dataset, "this year")
        yield f"That is the loss of {year}: caps renew every calendar year. Before: {earlier}; it adds up."
    if terms.series:
        yield "The first data of every month are the account's; other data are declared by its keeper."


def amounts(loss: Loss, steps: int) -> str:
    """Return in words the loss over some steps: epsilon grows with the number of steps, rho with its square."""
    parts = (
        ("epsilon", steps * loss.epsilon),
        ("rho", steps**2 * loss.rho),
        ("delta", loss.delta if steps == 1 else None),
    )
    said = ", ".join(f"{name} = {amount}" for name, amount in parts if amount)
    if loss.delta and steps > 1:
        said += f", delta = {steps} e^({steps - 1} epsilon) times {loss.delta}"
    return said or "no loss"


def _invariants(terms: Terms, shown: Shown, spent: Loss) -> Iterator[str]:
    waiting = [name for name in terms.invariants if name not in shown.published]
    if waiting:
        yield f"May be published exactly, and was not yet: {', '.join(waiting)}."
    if not shown.published:
        return
    yield (
        f"Published exactly, and not protected: {', '.join(shown.published)}. Compared are databases that share them."
    )
    yield from _joint(shown, spent)


def _joint(shown: Shown, spent: Loss) -> Iterator[str]:
    """Yield sentences on what the invariants of an account reveal together."""
    joint = shown.joint
    if joint is None:
        yield "The changes that they allow are not those of the unit: only the loss of one step is stated."
        return
    lost = [name for name in shown.published if name not in joint["of"]]
    if lost:
        yield (
            f"Together with {', '.join(lost)}, over another table or other places, no smaller change is allowed than "
            f"by {', '.join(joint['of'])} alone:"
        )
    yield from joint["sentences"]
    if joint["steps"] is not None and not lost:
        yield f"All releases together lose at most {amounts(spent, joint['steps'])} for that change."


def _checks(terms: Terms, shown: Shown) -> Iterator[str]:
    version = f" of version {len(shown.data)} of the data" if len(shown.data) > 1 else ""
    yield (
        f"Questions about the confidential table that were answered exactly{version}: {shown.checked} of the {terms.checks} that "
        "are allowed. To ask whether a rule holds counts as one, whatever the answer."
    )
    facts = [f"'{question.text}'" for question in shown.held.values() if question.is_rule]
    if facts:
        yield f"Checked on the confidential counts and held, so that compared databases keep them: {'; '.join(facts)}."


def _unfinished(state: State, dataset: str) -> Iterator[str]:
    if count := len(state.unfinished(dataset)):
        yield f"Reservations without a release, which count as spent: {count}."
