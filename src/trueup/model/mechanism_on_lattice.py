"""Queries with noise that changes no invariant (`noise = "lattice-..."`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from trueup.arrays.lattice import bind
from trueup.errors import SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.invariants import invariants_over
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise import law_named
from trueup.privacy.contribution import Reach


class LatticePlan(NamedTuple):
    """A law bound to the lattice of one measured margin, with its notes."""

    law: Any
    sentences: tuple[str, ...]


def plan_on_lattice(
    spec: Spec, query: Query, margin: Margin, budget: Fraction, reach: Reach, constraints: Constraints
) -> LatticePlan:
    """Bind a lattice law to the invariants that are sums of the groups of `margin`.

    The budget is the loss of one step of the spec's neighbour relation: epsilon is the budget itself under `add-remove`, half
    of it under `replace`. Groups that hold structural zeros alone get no noise.

    Raises
    ------
    SpecError
        No invariant is a sum of the measured groups; a unit does not count exactly once; a budget in the
        wrong currency; or no exact sampler is fast enough.
    PrivacyError
        The invariants determine every count.
    """
    cells, law = constraints.cells, law_named(query.noise)
    if not invariants_over(constraints, margin).shape[0]:
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
    step = reach.sensitivity(spec.privacy.neighbours, cells=cells.size(margin))
    n, zeros = cells.size(margin), constraints.zero_groups(margin)
    bound = bind(law.for_budget(budget, step), n, invariants_over(constraints, margin), zeros, query.options)
    if (currency := bound.cost(step).currency) != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but '{query.noise}' is priced in {currency}",
            remedy=f"write `{currency} = ...`, or choose another noise",
        )
    return LatticePlan(bound, _sentences(query, margin, bound))


def with_lattices(spec: Spec, cells: Cells, headers: Sequence[Measured]) -> tuple[Measured, ...]:
    """Bind laws read from a file to the lattices that their variance depends on."""
    if all(header.law.factors for header in headers):
        return tuple(headers)
    constraints = build_constraints(spec, cells)
    return tuple(_with_lattice(constraints, header) for header in headers)


def _with_lattice(constraints: Constraints, header: Measured) -> Measured:
    law: Any = header.law
    if law.factors:
        return header
    return replace(header, law=law.over(_lattice(constraints, header.margin)))


def _lattice(constraints: Constraints, margin: Margin) -> Lattice:
    """Return the vectors over the groups of a margin that change no invariant; structural zeros get no noise."""
    return Lattice.of(
        constraints.cells.size(margin), invariants_over(constraints, margin), constraints.zero_groups(margin)
    )


def _sentences(query: Query, margin: Margin, bound: Any) -> tuple[str, ...]:
    parameter = ", ".join(f"{name} = {value}" for name, value in bound.parameters().items())
    return (
        f"The noise of '{query.name}' at '{margin}' changes no invariant ({parameter}).",
        *(f"Drawn: {line}." for line in bound.bound.explain()),
    )
