"""Queries whose noise keeps exact counts: on a lattice, adding up, or within known bounds.

Counting invariants as integer rows, each fixing how many units fall into a set of cells, or a weighted sum of its counts.
Source: Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy", definition 1 and equation 3.

One file: the three kinds of noise lie on the same lattice of exact counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when first used

from trueup.arrays.lattice import additive_rows
from trueup.arrays.within import NoiseWithin
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.linear.absolute_deviations import Region, feasible_point
from trueup.model.build import build_constraints, query_margin
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.linear_system import margin_rows, rule_blocks
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise import law_named
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.lattice.draw import choose_sampler
from trueup.noise.lattice.feasible import AddUpLaplace, WithinLaplace
from trueup.noise.law import Sensitivity
from trueup.privacy.contribution import Reach


class LatticePlan(NamedTuple):
    """A lattice law for one measured margin, with sentences on it for the report."""

    law: Any
    sentences: tuple[str, ...]


def plan_on_lattice(
    spec: Spec, query: Query, margin: Margin, budget: Fraction, reach: Reach, constraints: Constraints
) -> LatticePlan:
    """Return a lattice law that keeps the invariants which are sums of the groups of `margin`.

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
            f"query '{query.name}' asks for noise '{query.noise}' at '{margin}', but no invariant concerns that table",
            needed="an invariant that sums counts of that table",
            remedy="declare it under [constraints] invariants, or use 'discrete-laplace'",
        )
    if not reach.exact:
        raise SpecError(
            f"query '{query.name}' has noise '{query.noise}', but a unit may be counted in several of its counts, or in "
            "none",
            needed="a table in which each unit is counted once",
            remedy="use 'discrete-laplace', and let reconciliation keep the invariants",
        )
    step = reach.sensitivity(spec.privacy.neighbours, cells=cells.size(margin))
    n, zeros = cells.size(margin), constraints.zero_groups(margin)
    asked = law.for_budget(budget, step)
    bound = asked.as_asked(Lattice.of(n, invariants_over(constraints, margin), zeros), query.options)
    if (currency := bound.cost(step).currency) != query.currency:
        raise SpecError(
            f"query '{query.name}' gives a budget in {query.currency}, but the budget of '{query.noise}' noise is given "
            f"in {currency}",
            remedy=f"write `{currency} = ...`, or choose another noise",
        )
    return LatticePlan(bound, _sentences(query, margin, bound))


def slowest_of(query: Query) -> float:
    """Return a query's option `slowest`: the expected seconds of a draw beyond which the draw is refused."""
    given = dict(query.options)
    slowest = given.pop("slowest", 60.0)
    if given:
        raise SpecError(
            f"query '{query.name}' gives the noise '{query.noise}' the option '{next(iter(given))}'",
            needed="only `slowest`, the expected seconds of a draw beyond which it is refused",
            remedy="leave the other options out",
        )
    if isinstance(slowest, bool) or not isinstance(slowest, int | float) or not slowest >= 0:
        raise SpecError(
            f"query '{query.name}' gives slowest = {slowest!r}",
            needed="a number of seconds, 0 or more, such as slowest = 300",
        )
    return float(slowest)


def _sentences(query: Query, margin: Margin, bound: Any) -> tuple[str, ...]:
    parameter = ", ".join(f"{name} = {value}" for name, value in bound.parameters().items())
    return (
        f"The noise of '{query.name}' at '{margin}' changes no invariant ({parameter}).",
        *(f"Drawn: {line}." for line in bound.bound.explain()),
    )


def invariant_matrix(constraints: Constraints) -> scipy.sparse.csr_array:
    """Return all invariants as rows of whole numbers over the finest cells, `(m, n)`.

    Structural zeros are not among them: what may vary is `{v : A v = 0, v = 0 at constraints.zero_cells}`.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
    >>> women = Margin("all", where=((("sex", "f"),),))
    >>> invariant_matrix(Constraints(cells, (), (women, Margin("all")))).toarray().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 1]]
    """
    return invariants_over(constraints, constraints.cells.finest)


def invariants_over(constraints: Constraints, margin: Margin) -> scipy.sparse.csr_array:
    """Return the invariants that are sums of a margin's groups, as rows `(k, groups)`."""
    cells = constraints.cells
    rows = [over for each in constraints.invariants if (over := _over(cells, each, margin)) is not None]
    none: Any = scipy.sparse.csr_array((0, cells.size(margin)), dtype=np.int64)
    stacked = scipy.sparse.csr_array(scipy.sparse.vstack([none, *rows], format="csr", dtype=np.int64))
    return stacked[np.flatnonzero(np.diff(stacked.indptr))]


def _over(cells: Cells, invariant: Margin, margin: Margin) -> Any:
    """Return an invariant as rows over the groups of a margin, or None if the invariant is not a sum of the groups."""
    size = cells.size(margin)
    if cells.contains(invariant, margin):
        ones = np.ones(size, np.int64)
        place = (cells.groups(margin, invariant), np.arange(size))
        return scipy.sparse.csr_array((ones, place), shape=(cells.size(invariant), size))
    if not invariant.where:
        return None
    rows = rows_over(cells, margin_rows(cells, invariant), margin)
    return None if rows is None else rows.rint().astype(np.int64)


def rows_over(cells: Cells, rows: scipy.sparse.csr_array, margin: Margin) -> scipy.sparse.csr_array | None:
    """Return rows over the finest cells as rows over a margin's groups, or None if they are not sums of these groups.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> both = scipy.sparse.csr_array([[3.0, 3.0]])
    >>> rows_over(cells, both, Margin("all")).toarray(), rows_over(cells, both * [1, 0], Margin("all"))
    (array([[3.]]), None)
    """
    groups = margin_rows(cells, margin)
    mean = scipy.sparse.csr_array((rows @ groups.T).multiply(1 / groups.sum(axis=1)))
    # A sum of groups counts all cells of a group equally often.
    return None if abs(mean @ groups - rows).max() > 1e-6 else mean


def plan_adding_up(
    spec: Spec, query: Query, constraints: Constraints, reach: Reach
) -> dict[str, LatticePlan]:
    """Return, for each level of a query whose noise adds up, the law and sentences on it for the report."""
    cells, levels = constraints.cells, sorted(query.budgets, key=constraints.cells.tree.level)
    if why := _lattice_misfit(query, constraints):
        raise SpecError(f"query '{query.name}' has noise '{query.noise}', {why[0]}", needed=why[1])
    margins = [query_margin(cells, query, level) for level in levels]
    sizes = [cells.size(margin) for margin in margins]
    laws = [
        AddUpLaplace.for_budget(query.budgets[level], _level_step(spec, reach, size))
        for level, size in zip(levels, sizes)
    ]
    groups = [cells.groups(fine, coarse) for coarse, fine in pairwise(margins)]
    zeros = np.concatenate([constraints.zero_groups(margin) for margin in margins])
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    parents = np.concatenate(
        [np.full(sizes[0], -1), *(first + above for first, above in zip(firsts, groups))]
    )
    lattice = Lattice.of(sum(sizes), additive_rows(parents), zeros)
    finest = laws[-1].epsilon
    weights = [law.epsilon / finest for law, size in zip(laws, sizes) for _ in range(size)]
    bound = choose_sampler(LatticeLaplace(finest), lattice, weights=weights, slowest=slowest_of(query))
    told = (
        f"The noisy counts of '{query.name}' at {', '.join(levels)} add up as they are drawn.",
        *(f"Drawn: {line}." for line in bound.explain()),
    )
    return {
        level: LatticePlan(law.over(lattice, bound=bound, first=first), told if first == 0 else ())
        for level, law, first in zip(levels, laws, firsts)
    }


def _level_step(spec: Spec, reach: Reach, size: int) -> Sensitivity:
    """Return the sensitivity of one level's counts to one step."""
    step = reach.sensitivity(spec.privacy.neighbours, cells=size)
    return step if step.l1 else reach.sensitivity("add-remove", cells=size)


def _lattice_misfit(query: Query, constraints: Constraints) -> tuple[str, str] | None:
    """Return the reason why a query's noise cannot add up over levels, and the needed form; None if it can."""
    if len(query.budgets) < 2:
        return "and is measured at one level alone", "a total and its parts: two levels or more"
    if query.currency != "epsilon":
        return "and a budget in rho", "epsilon = { ... }"
    if constraints.invariants:
        return "and invariants are held", "'lattice-laplace', which keeps them"
    return None


def plan_within(
    spec: Spec, query: Query, margin: Margin, budget: Fraction, reach: Reach, constraints: Constraints
) -> LatticePlan:
    """Return the law of noise that keeps a margin's counts within known bounds and sums.

    Raises
    ------
    SpecError
        A budget in rho, an option that there is not, or a set that takes too long to draw from.
    PrivacyError
        The rules leave one table.
    """
    if query.currency != "epsilon":
        raise SpecError(
            f"query '{query.name}' has noise '{query.noise}' and a budget in rho",
            needed="a budget in epsilon: epsilon = { ... }",
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
    """Return a law whose noisy counts stay within the set that the constraints allow."""
    rules = _rules(constraints, margin)
    public, _ = feasible_point(rules)
    if public is None:
        raise InfeasibleError(
            f"no whole counts of '{margin}' satisfy the bounds and rules together",
            remedy="correct or drop one of them",
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
    return law.over(noise, bound=noise, public=table)


def _rules(constraints: Constraints, margin: Margin) -> Region:
    """Return the bounds on the groups of a margin, and the linear rows that limit sums of groups, as a region."""
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
    """Return headers read from a file with each lattice law given the lattice that determines its variance."""
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
    rows, zeros = invariants_over(constraints, header.margin), constraints.zero_groups(header.margin)
    return replace(header, law=law.over(Lattice.of(constraints.cells.size(header.margin), rows, zeros)))
