"""Queries whose noisy counts stay within known bounds, sums and rules (`noise = "within-laplace"`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from trueup.arrays.within import NoiseWithin
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.linear.feasible import Region, feasible_point
from trueup.model.build import build_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.linear_system import rule_blocks
from trueup.model.mechanism_on_lattice import LatticePlan, invariants_over, rows_over, slowest_of
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise.lattice.feasible import WithinLaplace
from trueup.privacy.contribution import Reach


def plan_within(
    spec: Spec, query: Query, margin: Margin, budget: Fraction, reach: Reach, constraints: Constraints
) -> LatticePlan:
    """Return the law of noise within what is known of the groups of a margin, drawn fast whatever the kept sums are.

    Raises
    ------
    SpecError
        A budget in rho, an option that there is not, or a set that takes too long to draw from.
    PrivacyError
        The rules leave one table.
    """
    if query.currency != "epsilon":
        raise SpecError(
            f"query '{query.name}' has noise '{query.noise}' and a budget in rho", needed="epsilon = { ... }"
        )
    step = reach.sensitivity(spec.privacy.neighbours, cells=constraints.cells.size(margin))
    law = bind_within(WithinLaplace.for_budget(budget, step), constraints, margin, slowest_of(query))
    told = (
        f"The noisy counts of '{query.name}' at '{margin}' stay within the bounds, sums and rules that are known of them.",
        *(f"Drawn: {line}." for line in law.bound.explain()),
    )
    return LatticePlan(law, told)


def bind_within(
    law: WithinLaplace, constraints: Constraints, margin: Margin, slowest: float = 60.0
) -> WithinLaplace:
    """Bind a law to the set of counts of a margin that the constraints allow, with a public table of it."""
    rules = _rules(constraints, margin)
    public, _ = feasible_point(rules)
    if public is None:
        raise InfeasibleError(
            f"no whole counts of '{margin}' obey the bounds and rules", remedy="correct or drop one of them"
        )
    table = np.rint(public).astype(np.int64)
    noise = NoiseWithin.of(
        table,
        epsilon=law.epsilon,
        A=invariants_over(constraints, margin),
        lower=rules.low,
        upper=rules.high,
        R=rules.rows,
        least=rules.bounds,
        slowest=slowest,
        known=False,
    )
    return law.inside(noise, table)


def _rules(constraints: Constraints, margin: Margin) -> Region:
    """Return bounds of the groups of a margin, and rows that limit their sums; what is known of finer counts is left out."""
    cells = constraints.cells
    n = cells.size(margin)
    low, high = np.full(n, 0.0 if constraints.nonnegative else -np.inf), np.full(n, np.inf)
    low[zeros := constraints.zero_groups(margin)] = 0.0
    high[zeros] = 0.0
    rows, least = [np.zeros((0, n))], [np.zeros(0)]
    for block in rule_blocks(constraints):
        over = rows_over(cells, block.matrix, margin)
        if over is None:
            continue
        alone = (np.diff(over.indptr) == 1) & (over.max(axis=1).toarray().ravel() == 1)
        at = over[alone].indices
        np.maximum.at(low, at, block.lower[alone])
        np.minimum.at(high, at, block.upper[alone])
        more = over[~alone].toarray()
        for sign, limit in ((1.0, block.lower[~alone]), (-1.0, -block.upper[~alone])):
            rows.append(sign * more[np.isfinite(limit)])
            least.append(limit[np.isfinite(limit)])
    return Region(np.vstack(rows), np.concatenate(least), np.ceil(low), np.floor(high), True)


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
    if law.name == "within-laplace":
        return replace(header, law=bind_within(law, constraints, header.margin, slowest=inf))
    return replace(header, law=law.over(_lattice(constraints, header.margin)))


def _lattice(constraints: Constraints, margin: Margin) -> Lattice:
    """Return the vectors over the groups of a margin that change no invariant; structural zeros get no noise."""
    return Lattice.of(
        constraints.cells.size(margin), invariants_over(constraints, margin), constraints.zero_groups(margin)
    )
