"""Joint effect of the invariants that an account has published: cells they determine, and the smallest change.

Every release names the smallest change under its own invariants. All releases of an account together compare databases that
share all of them: fewer databases, and larger changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from trueup.errors import SpecError
from trueup.ledger.questions import invariant_question
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.changes import smallest_change
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Change, Guarantee
from trueup.model.kept_of_family import kept_of
from trueup.model.spec import Spec
from trueup.privacy.contribution import Relation

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
    """Return what a release's invariants allow together with those published before.

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
    if not constraints.invariants or not _counts_units(spec):
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


def _counts_units(spec: Spec) -> bool:
    return spec.privacy.unit == spec.table.counts and all(a.partition for a in spec.attributes)


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
