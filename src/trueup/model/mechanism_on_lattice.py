"""Lay out a query whose noise changes no invariant (`noise = "lattice-..."`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from trueup.errors import SpecError
from trueup.kernel.lattice.moves import smallest_moves
from trueup.kernel.lattice.structure import Lattice
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.invariants import invariants_over
from trueup.model.nested import chain
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise import law_named
from trueup.noise.cost import Sensitivity
from trueup.privacy.contribution import Reach


class LatticePlan(NamedTuple):
    """A law bound to the lattice of one measured margin, and what to tell about it."""

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
        wrong currency; no exact sampler is fast enough; or the spec's format is 1, in which budgets meant another loss.
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
    lattice = _lattice(spec, constraints, margin)
    if spec.format == 1:
        _refuse_format_1(query, margin, budget, step, lattice, constraints)
    bound = law.for_budget(budget, step).as_asked(lattice, query.options)
    if (currency := bound.cost(step).currency) != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but '{query.noise}' is priced in {currency}",
            remedy=f"write `{currency} = ...`, or choose another noise",
        )
    return LatticePlan(bound, _sentences(query, margin, bound))


def with_lattices(spec: Spec, cells: Cells, headers: Sequence[Measured]) -> tuple[Measured, ...]:
    """Give laws that were read from a file, which holds no lattice, the one that their variance depends on."""
    if all(header.law.factors for header in headers):
        return tuple(headers)
    constraints = build_constraints(spec, cells)
    return tuple(_with_lattice(spec, constraints, header) for header in headers)


def _with_lattice(spec: Spec, constraints: Constraints, header: Measured) -> Measured:
    law: Any = header.law
    if law.factors:
        return header
    return replace(header, law=law.over(_lattice(spec, constraints, header.margin)))


def _lattice(spec: Spec, constraints: Constraints, margin: Margin) -> Lattice:
    """The vectors over the groups of a margin that change no invariant; in format 1 structural zeros got noise, too."""
    zeros = None if spec.format == 1 else constraints.zero_groups(margin)
    return Lattice.of(constraints.cells.size(margin), invariants_over(constraints, margin), zeros)


def _refuse_format_1(
    query: Query,
    margin: Margin,
    budget: Fraction,
    step: Sensitivity,
    lattice: Lattice,
    constraints: Constraints,
) -> None:
    """Refuse a budget that was meant for one smallest change, and say which one has the same law today.

    In format 1 one unit of the budget was a move where invariants are nested and a swap of two units where they cross, or
    the vectors that generate the lattice if they are longer.
    """
    factor = 2 if chain(constraints.cells, constraints.invariants) else 4
    moves = smallest_moves(lattice)
    old = Sensitivity(
        max(Fraction(min(factor, lattice.n)), Fraction(moves.l1)),
        max(Fraction(min(factor, lattice.n)), Fraction(moves.l2_squared)),
    )
    law = law_named(query.noise)
    today = _short_below(law.for_budget(budget, old).cost(step).amount)
    raise SpecError(
        f"the spec has format = 1, where the budget of noise '{query.noise}' was the loss of a smallest change; it is "
        "now the loss of one step of the neighbour relation, so that losses add up",
        needed="format = 2",
        remedy=f"for the same noise write `format = 2`, and in query '{query.name}' "
        f'`{query.currency} = {{ "{margin.level}" = "{today}" }}` in place of "{budget}"',
    )


def _short_below(amount: Fraction) -> Fraction:
    """The amount itself, or a decimal just below it where it is the bound of a square root: no less noise."""
    return amount if amount.denominator < 10**12 else Fraction(int(amount * 10**9), 10**9)


def _sentences(query: Query, margin: Margin, bound: Any) -> tuple[str, ...]:
    parameter = ", ".join(f"{name} = {value}" for name, value in bound.parameters().items())
    return (
        f"The noise of '{query.name}' at '{margin}' changes no invariant ({parameter}).",
        *(f"Drawn: {line}." for line in bound.bound.explain()),
    )
