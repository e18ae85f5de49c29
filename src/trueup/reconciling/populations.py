"""Populations drawn to be plausible given the measurements, on which errors are simulated.

Not the released counts, and no other point: where noise is wide these are too even or too uneven, and errors that are
simulated on them are those of another population. Draws have the spread that the true counts have, as far as it is known,
and the doubt about each of them. Nested margins are drawn on their tree, crossing ones from the posterior means of
`histogram-tree` and their variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError, TrueupError
from trueup.kernel import Status
from trueup.kernel.settling.split_draws import tree_draws
from trueup.kernel.tree import sweep_up
from trueup.kernel.tree.topdown import attainable
from trueup.layouts.tree import refuse_conflicts, refuse_unidentified, tree_problem, whole_values
from trueup.model.build import build_constraints, cells_of_sizes
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.spec import Spec
from trueup.reconciling.method import Method, Solution


def drawn_populations(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: NDArray,
    number: int,
    rng: np.random.Generator,
    places: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Draw whole-number populations `(number, n)` that are plausible given measured values `(q,)`.

    With `places`, a mask of those of the last level, counts elsewhere may be left out, and zero.

    Raises
    ------
    SpecError
        If nothing is drawn under these constraints: linear rules, counts below zero, correlated noise.
    ConvergenceError
        If a draw leaves some place without a table.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> from trueup.model.problem import Problem
    >>> from trueup.model.tree import Tree
    >>> problem = Problem.of(AREAS, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> values = np.array([701, 299, 404])
    >>> found = drawn_populations(problem.constraints, problem.headers, values, 3, np.random.default_rng(1))
    >>> found.shape, bool(abs(found.sum(axis=1) - 701).max() < 20)
    ((3, 2), True)
    """
    structure = constraints.structure()
    if (
        structure == "general"
        or not constraints.nonnegative
        or any(h.law.joint for h in headers if not h.exact)
    ):
        odd = "rules that cross several tables" if structure == "general" else "noise that keeps invariants"
        raise SpecError(
            f"no population can be simulated under {odd if constraints.nonnegative else 'counts below zero'}",
            needed="nonnegative counts, nested or crossing tables, and independent noise",
        )
    if structure in ("sum", "tree"):
        return _of_tree(constraints, headers, values, number, rng)
    if structure == "margins" and any(h.exact for h in headers):
        return _within_margins(constraints, headers, values, number, rng)
    rows = np.tile(values, (number, 1))
    if structure in ("joined", "family"):
        from trueup.reconciling.family_tree import FamilyTree
        from trueup.reconciling.joined_tree import JoinedTree

        method: Any = JoinedTree(estimates="least-squares") if structure == "joined" else FamilyTree()
        return _solved(method.apply(method.prepare(constraints, headers), rows, rng, drawn=rng))
    from trueup.kernel.settling.descend import Settling
    from trueup.layouts.histogram import histogram_problem
    from trueup.reconciling.histogram_tree import solution

    some = replace(constraints, bounds=tuple(b for b in constraints.bounds if b.upper is None))
    problem = histogram_problem(some, headers, folded=True)
    return _solved(
        solution(problem, rows, problem.chains, rng, Settling(posterior=True, drawn=rng, leaves=places))
    )


def _solved(found: Solution) -> NDArray[np.int64]:
    if found.status is not Status.SOLVED:
        raise ConvergenceError(found.status)
    return found.values


def _within_margins(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: NDArray,
    number: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw tables given the noisy values, and return the nearest tables that have the exact margins."""
    from trueup.reconciling.margins_projection import MarginsProjection

    parts = split(values, headers, constraints.cells)
    noisy = [(h, part) for h, part in zip(headers, parts, strict=True) if not h.exact]
    flat = np.concatenate([part for _, part in noisy])
    free = drawn_populations(replace(constraints, invariants=()), [h for h, _ in noisy], flat, number, rng)
    rows = [
        np.broadcast_to(part, (number, part.size)) if h.exact else constraints.cells.sum(free, h.margin)
        for h, part in zip(headers, parts, strict=True)
    ]
    method = MarginsProjection()
    return _solved(method.apply(method.prepare(constraints, headers), np.concatenate(rows, axis=1), rng))


def _of_tree(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: NDArray,
    number: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    problem = tree_problem(constraints, headers)
    refuse_unidentified(problem)
    nodes = problem.values(values)
    (lower, upper), (gain, spread) = problem.bounds(), problem.messages
    low, high = np.empty_like(lower), np.empty_like(upper)
    if attainable(problem.child_ptr, problem.variance == 0, lower, upper, nodes, low, high) >= 0:
        refuse_conflicts(problem, nodes)
    sweep_up(problem.child_ptr, gain, nodes)
    level_ptr = problem.nested.level_ptr
    draws = tree_draws(problem.child_ptr, level_ptr, nodes, spread, low, high, number, rng)
    return problem.finest(whole_values(problem, draws, rng))


def warm(spec: Spec, headers: Sequence[Measured], method: Method) -> None:
    """Reconcile measurements of zero on a few places, to compile all kernels that a release needs.

    Noise that is drawn for all places together is left out: its law holds for these places alone.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> from trueup.reconciling.tree_topdown import TreeTopDown
    >>> warm(AREAS, [], TreeTopDown())
    """
    if any(h.law.joint for h in headers):
        return
    with suppress(
        TrueupError
    ):  # a rule may not hold of these places; the kernels before it are ready all the same
        cells = cells_of_sizes(spec, [1, *[2] * (len(spec.levels) - 1)])
        few = [Measured(h.query, h.margin, h.law).at(cells) for h in headers]
        state = method.prepare(build_constraints(spec, cells), few)
        values = np.zeros(sum(h.sums(cells, np.zeros(cells.n, np.int64)).size for h in few), np.int64)
        method.apply(state, values, np.random.default_rng(0))
        method.errors(state)
        drawn_populations(build_constraints(spec, cells), few, values, 1, np.random.default_rng(0))
