"""Checks that an account allows a request."""

from __future__ import annotations

from trueup.errors import BudgetError
from trueup.ledger.request import Owner, Request, Terms
from trueup.ledger.totals import Caps, Totals, spent_in
from trueup.privacy import Loss


def admit(state: Totals, request: Request, when: str) -> None:
    """Refuse a request that an account does not allow at a given time.

    Raises
    ------
    BudgetError
        If it cannot be afforded, its data are not the account's, or the number of checks would be exceeded.
    """
    afford(state, request, when)
    _refuse_other_data(state, request, when)
    _answerable(state, request)


def afford(state: Totals, request: Request, when: str) -> None:
    """Refuse a request that an account does not allow at a given time, whatever its data are.

    Raises
    ------
    BudgetError
        If the dataset has no account, the analyst is not on its list, an invariant was not declared, a currency
        has no cap, or a cap would be exceeded.
    """
    account_terms(state, request.dataset)
    _refuse_uncapped_analyst(state, request.dataset, request.analyst)
    _refuse_undeclared(state, request)
    for owner in request.owners:
        caps = state.caps.get(owner)
        if caps is None and owner[1] is not None and not state.analysts(request.dataset):
            continue
        _refuse_over_cap(owner, request.loss, caps or {}, state.spent_at(owner, when))


def account_terms(state: Totals, dataset: str) -> Terms:
    """Return the terms of a dataset's account."""
    if dataset not in state.terms:
        known = ", ".join(sorted(state.terms)) or "none"
        raise BudgetError(
            f"dataset '{dataset}' has no cap in this ledger (known: {known})",
            remedy="declare its caps with `trueup budget init`, or give a known dataset",
        )
    return state.terms[dataset]


def _refuse_uncapped_analyst(state: Totals, dataset: str, analyst: str) -> None:
    analysts = state.analysts(dataset)
    if analysts and analyst not in analysts:
        raise BudgetError(
            f"analyst '{analyst}' has no cap on dataset '{dataset}'",
            needed=f"one of {', '.join(analysts)}",
            remedy="give the analyst a cap with `trueup budget init --cap ANALYST:CURRENCY=AMOUNT`",
        )


def _refuse_other_data(state: Totals, request: Request, when: str) -> None:
    """Refuse a request on data other than those declared for the account."""
    shown = state.shown[request.dataset]
    known = shown.data
    if state.terms[request.dataset].series and when[:7] > shown.month:
        return
    if request.data is not None and known and request.data not in known:
        raise BudgetError(
            f"the data differ from those of the account of dataset '{request.dataset}'",
            needed="the data with which the account began, or that its keeper declared later",
            remedy=f"declare the corrected data: trueup budget data LEDGER --dataset {request.dataset} --data FILE",
        )


def _refuse_undeclared(state: Totals, request: Request) -> None:
    """Refuse invariants that were not declared before any output was seen."""
    allowed = state.terms[request.dataset].invariants
    for invariant in request.invariants:
        if invariant.text not in allowed:
            listed = ", ".join(f"'{name}'" for name in allowed) or "none"
            raise BudgetError(
                f"the invariant '{invariant.text}' is not declared for dataset '{request.dataset}' (declared: {listed})",
                needed="an invariant that was declared when the account began",
                remedy="leave the invariant out of [constraints], and measure this count with noise",
            )
        if invariant.digest != allowed[invariant.text]:
            raise BudgetError(
                f"the invariant '{invariant.text}' differs from the one that was declared under this name",
                needed="the table, columns, conditions and places of that invariant",
                remedy="correct the invariant, or leave it out and measure this count with noise",
            )


def _answerable(state: Totals, request: Request) -> None:
    terms, shown = state.terms[request.dataset], state.shown[request.dataset]
    new, left = shown.of(request).new(request.questions, terms.listed), shown.left(request, terms.checks)
    if left < max(len(new.rules), bool(new.firsts)) or left < 0:
        words = "; ".join(f"'{q.text}'" for q in (*new.rules, *new.firsts)) or "whether it can be read"
        raise BudgetError(
            f"the release checks rules on dataset '{request.dataset}' that were not checked before: {words}",
            needed=f"at most {max(left, 0)} new checks (of {terms.checks}), because each check reveals an exact fact about "
            "confidential counts",
            remedy="leave the rules out, or have the keeper list them in a new account (`trueup budget init --list`) or declare "
            "a corrected table (`trueup budget data`), on which rules are counted anew"
            + (
                ""
                if request.data
                else "; this dataset cannot be recognised, so that every check counts each time"
            ),
        )


def _refuse_over_cap(owner: Owner, loss: Loss, caps: Caps, spent: Loss) -> None:
    """Refuse a loss that exceeds a cap of one owner; a cap in rho also bounds losses in epsilon, but not conversely."""
    total = spent + loss
    covered = {"epsilon": "epsilon" in caps or "rho" in caps, "rho": "rho" in caps, "delta": "delta" in caps}
    for currency, wanted in (("epsilon", loss.epsilon), ("rho", loss.rho), ("delta", loss.delta)):
        if wanted and not covered[currency]:
            raise BudgetError(
                f"{_whose(owner)} has no cap in {currency}",
                remedy="declare a cap with `trueup budget init`, or give the budgets of the spec in a unit that has a cap",
            )
    for currency, cap in caps.items():
        if spent_in(currency, total) > cap:
            raise BudgetError(
                f"the release asks {_whose(owner)} for more {currency} than is left",
                needed=f"at most {max(cap - spent_in(currency, spent), 0)} of the cap {cap}",
                remedy="lower the budgets of the spec, or wait for the next year if the caps renew yearly",
            )


def _whose(owner: Owner) -> str:
    dataset, analyst = owner
    return f"dataset '{dataset}'" if analyst is None else f"analyst '{analyst}' on dataset '{dataset}'"


def agree(state: Totals, dataset: str, terms: Terms | None) -> Terms | None:
    """Return the terms of a new account, None for an existing one; refuse missing or different terms."""
    known = state.terms.get(dataset)
    if terms is None and known is None:
        raise BudgetError(
            f"the unit and the neighbour relation of the account of dataset '{dataset}' are missing",
            needed="a unit and a neighbour relation; only losses that agree in both can be added",
            remedy="give --unit and --neighbours",
        )
    if terms is not None and known is not None and known != terms:
        raise BudgetError(
            f"the account of dataset '{dataset}' was declared under other terms: one {known.unit}, {known.neighbours}, "
            f"invariants {', '.join(known.invariants) or 'none'}, {known.checks} checks",
            needed="the same terms; terms never change once they are declared",
            remedy="leave out the terms to add caps",
        )
    return terms if known is None else None
