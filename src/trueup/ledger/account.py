"""Accounts of a ledger, to which runs are charged.

Joint effect of the invariants that an account has published: cells they determine, and the smallest change.
Every release names the smallest change under its own invariants. All releases of an account together compare databases that
share all of them: fewer databases, and larger changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from trueup.errors import BudgetError, DataError, SpecError
from trueup.files import JoinedTables
from trueup.files.source import files_read
from trueup.io.bundle.manifest import read_spec
from trueup.ledger.admission import account_terms, afford
from trueup.ledger.entries import this_time
from trueup.ledger.ledger import Ledger
from trueup.ledger.questions import invariant_question, invariants, questions
from trueup.ledger.request import Request, keys_taken, place_columns
from trueup.ledger.reservation import Reservation
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.changes import kept_of, smallest_change
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Change, Guarantee
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.privacy.contribution import Relation


@dataclass(frozen=True)
class Account:
    """A ledger, the analyst who is charged, and the key that makes a run repeatable.

    Attributes
    ----------
    ledger, analyst
        The ledger in which the run is charged, and the analyst who is charged.
    key
        Idempotency key: a second run under it returns the first one's release and draws nothing.
    """

    ledger: Ledger
    analyst: str
    key: str | None = None

    @classmethod
    def open(
        cls, url: str | None, analyst: str | None, key: str | None, keeper: Path | None = None
    ) -> Account | None:
        """Open the account that the options name, and complete what a crashed run left; return None without a ledger.

        `keeper` is the keeper's folder, where it is not beside the ledger.

        Raises
        ------
        SpecError
            If a ledger is given without an analyst, or an analyst or key without a ledger.
        BudgetError
            If the ledger cannot be used.
        """
        if url is None:
            if analyst is not None or key is not None:
                raise SpecError(
                    f"{'an analyst' if analyst is not None else 'a key'} is given without a ledger",
                    remedy="add --ledger URL, or leave it out",
                )
            return None
        if analyst is None:
            raise SpecError("a ledger is given without the name of the analyst", remedy="add --analyst NAME")
        ledger = Ledger.open(url, keeper)
        ledger.recover()
        return cls(ledger, analyst, key)

    @property
    def repeats(self) -> bool:
        """Return True if a release was committed under the key, so that a run with it draws nothing."""
        return self.ledger.state().finished(self.key) is not None

    def refuse_hidden_keys(self, spec: Spec, geography: Any = None, data: Any = None) -> None:
        """Refuse to take places from columns that the account does not declare public."""
        given = geography is not None
        taken = (
            keys_taken(spec) if not given else place_columns(spec) if _is_data_itself(geography, data) else ()
        )
        if not taken:
            return
        public = account_terms(self.ledger.state(), spec.table.name).public
        if hidden := next((column for column in taken if column not in public), None):
            raise BudgetError(
                f"{'--geography' if given else 'the spec'} takes its places from the column '{hidden}' of the confidential table",
                needed=f"columns whose values the account declares public; it declares {', '.join(public) or 'none'}",
                remedy='give a public list of places with --geography and write keys = "confidential", or have the account begun '
                f"with --public-keys {hidden}",
            )

    def request(self, problem: Problem, out: Path, data: Any = None) -> Request:
        """Return the request of a run: its loss under the account's neighbour relation, and its exact answers."""
        spec, cells, guarantee = problem.spec, problem.cells, problem.guarantee
        dataset = spec.table.name
        state = self.ledger.state()
        terms, shown = account_terms(state, dataset), state.shown[dataset]
        if spec.privacy.unit != terms.unit:
            raise BudgetError(
                f"the spec protects one {spec.privacy.unit}, but the account of dataset '{dataset}' is for one "
                f"{terms.unit}",
                needed="the unit of the account, because losses of different units cannot be added",
                remedy=f'write unit = "{terms.unit}" with its budgets, or begin another account',
            )
        asked = Request(
            dataset,
            self.analyst,
            guarantee.price(terms.neighbours),
            self.key,
            _spec_digest(problem.written()),
            invariants(spec, cells),
            questions(spec, cells, problem.rows),
            joint=joint_picture(spec, cells, guarantee, terms.neighbours, shown.published, shown.joint),
            target=str(out.absolute()),
        )
        return replace(asked, data=self._fingerprint(asked, data))

    def _fingerprint(self, asked: Request, data: Any) -> str | None:
        """Return the fingerprint of the data; None if the run is finished or there is no keeper."""
        if data is None or self.ledger.keeper is None or self.ledger.finished(asked):
            return None
        afford(self.ledger.state(), asked, this_time())
        return self.ledger.keeper.fingerprint(data)

    def note(self, reservation: str, **facts: Any) -> None:
        """Add a note to the keeper's private log, if there is a keeper."""
        if self.ledger.keeper:
            self.ledger.keeper.note(reservation=reservation, analyst=self.analyst, **facts)

    def holds(self, request: Request, out: Path) -> bool:
        """Return True if the requested release is in the folder `out`, committed under the request's key.

        Raises
        ------
        BudgetError
            If the key's release stands elsewhere or is that of another spec.
        """
        done = self.ledger.finished(request)
        if done and Path(done.final) != out.absolute():
            raise BudgetError(
                f"a release under this key is finished in '{done.final}'; nothing new is drawn",
                remedy="give that folder as --out, or choose a new key for a new release",
            )
        if done and _spec_digest(read_spec(out)[0]) != request.spec:
            raise BudgetError(
                "the key belongs to a release of another spec",
                remedy="choose a new --key, or give the spec of that release",
            )
        return done is not None

    def reserve(self, request: Request, *, name: str | None = None) -> Reservation:
        """Charge the loss of a run; confidential counts may be read only afterwards.

        A run that may be killed and go on gives the reservation a `name`; see `Ledger.reserve`.
        """
        reservation = self.ledger.reserve(request, name)
        if reservation.committed and reservation.name != name:
            raise BudgetError(
                f"another run has released under the key '{self.key}' in the meantime; nothing was drawn or charged",
                remedy="run again to get that release",
            )
        return reservation


def _spec_digest(spec_text: str) -> str:
    return hashlib.sha256(spec_text.encode()).hexdigest()


def _is_data_itself(geography: Any, data: Any) -> bool:
    """Return True if a list of places is the confidential table itself, or one of its files."""
    tables = [data.persons, data.households] if isinstance(data, JoinedTables) else [data]
    if any(geography is table for table in tables):
        return True
    with suppress(DataError, OSError):  # what is not there is said where it is read
        return any(one.samefile(other) for one in files_read(geography) for other in files_read(data))
    return False


SHOWN_CELLS = 20
"""Determined cells that are named one by one."""


def joint_picture(
    spec: Spec,
    cells: Cells,
    guarantee: Guarantee,
    relation: Relation,
    published: Mapping[str, str],
    before: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """Return the joint effect of a release's invariants and earlier ones: determined cells, and the smallest change.

    Parameters
    ----------
    spec, cells, guarantee
        The release.
    relation
        The account's.
    published, before
        Digests of the meanings of published invariants, by name, and the last picture of them. Those that mean something
        else on this release's cells, such as counts by another list of places, are left out: `of` names the others.

    Returns
    -------
    None if the release publishes nothing exactly, or units are not what is counted.
    """
    constraints = build_constraints(spec, cells)
    counts_units = spec.privacy.unit == spec.table.counts and all(a.partition for a in spec.attributes)
    if not constraints.invariants or not counts_units:
        return None
    earlier = [
        m for m in map(_margin, (before or {"of": {}})["of"].values()) if _means(spec, cells, m, published)
    ]
    together = tuple(dict.fromkeys((*constraints.invariants, *earlier)))
    whole = replace(constraints, invariants=together)
    same = together == constraints.invariants and relation == spec.privacy.neighbours
    change = guarantee.change if same else smallest_change(whole, relation)
    return {
        "of": {
            str(m): [m.level, m.attributes, m.where, *([m.weights] if m.weights else ())] for m in together
        },
        "steps": change.steps if change else None,
        "sentences": [*_determined(whole, relation), _smallest(change, constraints)],
    }


def _margin(plain: Any) -> Margin:
    level, attributes, where, *weights = plain
    conditions = tuple(tuple(map(tuple, each)) for each in where)
    return Margin(level, tuple(attributes), conditions, *map(tuple, weights))


def _means(spec: Spec, cells: Cells, margin: Margin, published: Mapping[str, str]) -> bool:
    """Return True if the invariant selects the same cells as the one already published under its name."""
    try:
        return invariant_question(spec, cells, margin).digest == published.get(str(margin))
    except SpecError:
        return False


def _determined(constraints: Constraints, relation: Relation) -> list[str]:
    kept = kept_of(constraints, total=relation == "replace")
    fixed = kept.fixed(kept.cells.finest)
    names = list(islice(fixed.labels(), SHOWN_CELLS))
    if not names:
        return ["They determine no count of a cell."]
    more = f" and {fixed.count - len(names)} more" if fixed.count > len(names) else ""
    return [f"Together they determine these counts, which are not protected: {'; '.join(names)}{more}."]


def _smallest(change: Change | None, constraints: Constraints) -> str:
    what = "with the structural zeros of the last release, " if constraints.zeros else ""
    if change is None:
        return (
            f"The smallest change that they allow together was not found ({what}or every cell is determined)."
        )
    most = "" if change.smallest else "at most "
    return (
        f"The smallest change that they allow together, {what}in the cell that is hardest to change: "
        f"{most}{change.steps} step{'s' * (change.steps != 1)}, which move the counts by {most}{change.norm} in L1."
    )
