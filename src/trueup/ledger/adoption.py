"""Going on with an account of format 1: what its caps, losses and open reservations become."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueup.errors import BudgetError, BundleError, SpecError
from trueup.io.bundle.manifest import read_spec
from trueup.ledger.format_1 import spent_in
from trueup.ledger.publish import MANIFEST, published_manifest
from trueup.ledger.request import Owner
from trueup.ledger.terms import Terms
from trueup.model.spec import Spec
from trueup.privacy.accountant import Loss

if TYPE_CHECKING:
    from trueup.ledger.state import State
    from trueup.ledger.totals import Commit


@dataclass(frozen=True)
class Adoption:
    """What becomes of an account of format 1.

    Attributes
    ----------
    confirmed, unread
        Its releases whose bundle states the same unit and relation, and those whose bundle does not stand where it was
        published: that they were for this unit and relation is then declared by whoever adopts, not verified.
    ended, kept
        Caps of kind `invariant`, by whose they are, that end because there is one of kind `dp` in the currency, and those that
        go on as caps of the one currency because there is none.
    exceeded
        Caps that everything spent together passes: nothing more is granted.
    open
        Reservations without a release.
    """

    confirmed: tuple[str, ...]
    unread: tuple[str, ...]
    ended: Mapping[str, str]
    kept: Mapping[str, str]
    exceeded: tuple[str, ...]
    open: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Return it as fields of an entry."""
        return {
            "confirmed": list(self.confirmed),
            "unread": list(self.unread),
            "ended": dict(self.ended),
            "kept": dict(self.kept),
            "exceeded": list(self.exceeded),
            "open": list(self.open),
        }

    def sentences(self) -> list[str]:
        """Say it in words."""
        losses = (
            "What was spent counts on against caps of one currency, for one step of the relation, that of kind 'invariant' "
            "included: it was charged for a change that keeps the invariants, which never costs less than one step."
        )
        return [
            losses,
            *(
                f"The cap of kind 'invariant', {whose} = {amount}, ends: the one of kind 'dp' bounds the sum."
                for whose, amount in self.ended.items()
            ),
            *(
                f"The cap of kind 'invariant', {whose} = {amount}, goes on as that of the account: there is no other."
                for whose, amount in self.kept.items()
            ),
            *(f"What was spent passes the cap {whose}: nothing more is granted." for whose in self.exceeded),
            f"Open reservations stay spent, and no release can be committed under them: {len(self.open)}. "
            "Nobody wrote down whether noise was drawn.",
            f"Releases whose bundle states this unit and relation: {len(self.confirmed)}. Releases whose bundle was not "
            f"found, so that this is declared and not verified: {len(self.unread)}.",
        ]


def adopt_ledger(state: State, dataset: str, terms: Terms) -> Adoption:
    """Find out what becomes of an account of format 1 under stated terms.

    Raises
    ------
    BudgetError
        If there is none, or a release of it states another unit or relation.
    """
    if dataset not in state.old.datasets:
        what = "is kept under its terms already" if dataset in state.terms else "has no account"
        raise BudgetError(
            f"dataset '{dataset}' {what} in this ledger", remedy="look with `trueup budget show`"
        )
    commits = [commit for commit in state.commits.values() if commit.request.dataset == dataset]
    confirmed = [c.final for c in commits if _confirms(c, terms)]
    ended, kept = _caps_of_invariants(state, dataset)
    return Adoption(
        tuple(confirmed),
        tuple(c.final for c in commits if c.final not in confirmed),
        ended,
        kept,
        _exceeded(state, dataset),
        tuple(state.unfinished(dataset)),
    )


def _caps_of_invariants(state: State, dataset: str) -> tuple[dict[str, str], dict[str, str]]:
    """Caps of kind `invariant` that end, and those that go on."""
    ended: dict[str, str] = {}
    kept: dict[str, str] = {}
    for (owner, kind), caps in state.old.caps.items():
        if owner[0] == dataset and kind == "invariant":
            other = state.old.caps.get((owner, "dp"), {})
            for currency, cap in caps.items():
                (ended if currency in other else kept)[_whose(owner, currency)] = str(cap)
    return ended, kept


def _exceeded(state: State, dataset: str) -> tuple[str, ...]:
    caps, spent = deepcopy(state.old).carry(dataset)
    return tuple(
        _whose(owner, currency)
        for owner, held in caps.items()
        for currency, cap in held.items()
        if spent_in(currency, spent.get(owner, Loss())) > cap
    )


def _whose(owner: Owner, currency: str) -> str:
    return currency if owner[1] is None else f"{owner[1]}:{currency}"


def _confirms(commit: Commit, terms: Terms) -> bool:
    """Whether the bundle of a commit stands in its place and states the terms.

    A loss of kind `invariant` is charged for a change, which costs no less than a step of either relation.
    """
    spec = _spec_of(commit)
    if spec is None:
        return False
    unit, neighbours = spec.privacy.unit, spec.privacy.neighbours
    if unit != terms.unit or (commit.request.kind == "dp" and neighbours != terms.neighbours):
        raise BudgetError(
            f"the release '{commit.final}' was charged for one {unit}, {neighbours}",
            needed=f"releases for one {terms.unit}, {terms.neighbours}: other losses do not add up to anything",
            remedy="adopt under the release's unit and relation, or begin another account",
        )
    return True


def _spec_of(commit: Commit) -> Spec | None:
    """The spec of a committed release, if its bundle stands where it was published, as it was committed."""
    folder = Path(commit.final)
    try:
        digest, _ = published_manifest(folder / MANIFEST)
        return read_spec(folder)[1] if digest == commit.manifest else None
    except (BundleError, SpecError):
        return None
