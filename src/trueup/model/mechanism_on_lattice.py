"""Lay out a query whose noise changes no invariant (`noise = "lattice-..."`)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from trueup.errors import SpecError
from trueup.kernel.lattice.moves import smallest_moves
from trueup.kernel.lattice.structure import Lattice
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.invariants import invariants_over
from trueup.model.spec import Query
from trueup.noise import law_named
from trueup.noise.cost import Cost, Sensitivity
from trueup.privacy.contribution import Contribution, Relation

SHOWN = 20
"""Pinned counts that a guarantee names one by one."""


class LatticePlan(NamedTuple):
    """A law bound to the lattice of one measured margin, what it costs, and what to tell.

    Attributes
    ----------
    law
        The bound law.
    cost
        Loss of one smallest change that keeps the invariants.
    sentences
        Conditions for the guarantee: the change, the sampler, what is pinned.
    """

    law: Any
    cost: Cost
    sentences: tuple[str, ...]


def plan_on_lattice(
    query: Query,
    margin: Margin,
    budget: Fraction,
    reach: Contribution,
    relation: Relation,
    constraints: Constraints,
) -> LatticePlan:
    """Bind a lattice law to the invariants that are sums of the groups of `margin`.

    The budget is the loss of one smallest change, or of one step of the spec's neighbour relation where that moves
    the counts further: epsilon is half of it where one sum is fixed (a move touches two counts), a quarter
    where both margins of a table are (a swap touches four).

    Raises
    ------
    SpecError
        No invariant is a sum of the measured groups; a unit does not count exactly once; a budget in the
        wrong currency; or no exact sampler is fast enough.
    PrivacyError
        The invariants determine every count.
    """
    cells, law = constraints.cells, law_named(query.noise)
    held = invariants_over(constraints, margin)
    if not held.shape[0]:
        raise SpecError(
            f"query '{query.name}' asks for noise '{query.noise}' at '{margin}', where no invariant is held",
            needed="an invariant that sums counts of that table",
            remedy="declare it under [constraints] invariants, or use 'discrete-laplace'",
        )
    if not reach.exact:
        raise SpecError(
            f"query '{query.name}' has noise '{query.noise}', but a unit does not count exactly once in it",
            needed="counts that partition the units of privacy",
            remedy="use 'discrete-laplace' and leave the invariants to reconciliation",
        )
    lattice = Lattice.of(cells.size(margin), held)
    moves = smallest_moves(lattice)
    step = reach.sensitivity(relation, cells=lattice.n)
    unit = Sensitivity(max(step.l1, Fraction(moves.l1)), max(step.l2_squared, Fraction(moves.l2_squared)))
    bound = law.for_budget(budget, unit).on(lattice, **query.options)
    cost = bound.cost(unit)
    if cost.currency != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but '{query.noise}' is priced in {cost.currency}",
            remedy=f"write `{cost.currency} = ...`, or choose another noise",
        )
    return LatticePlan(
        bound, cost, (*_sentences(query, margin, unit, bound), *_pinned(cells, margin, lattice))
    )


def _sentences(query: Query, margin: Margin, unit: Sensitivity, bound: Any) -> tuple[str, ...]:
    parameter = ", ".join(f"{name} = {value}" for name, value in bound.parameters().items())
    return (
        f"The noise of '{query.name}' at '{margin}' changes no invariant ({parameter}). Its cost is that of one smallest "
        f"change that keeps them, which moves the counts by at most {unit.l1} in all; databases further apart are "
        "joined by several such changes, each at that cost.",
        *(f"Drawn: {line}." for line in bound.bound.explain()),
    )


def _pinned(cells: Cells, margin: Margin, lattice: Lattice) -> tuple[str, ...]:
    if not len(lattice.pinned):
        return ()
    names = [cells.margin_label(margin, int(group)) for group in lattice.pinned[:SHOWN]]
    more = f" and {len(lattice.pinned) - SHOWN} more" if len(lattice.pinned) > SHOWN else ""
    return (
        f"The invariants determine these counts, published exactly and not protected: {'; '.join(names)}{more}.",
    )
