"""Populations that are possible given the measurements, drawn as stand-ins for the true one.

Not the released counts, and no other point: where noise is wide these are too even or too uneven, and errors that are
simulated on them are those of another population. Draws have the spread that the true counts have, as far as it is known,
and the doubt about each of them. Nested margins are drawn on their tree, crossing ones from the posterior means of
`histogram-tree` and their variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.kernel.settling.tree_draws import tree_draws
from trueup.kernel.status import Status
from trueup.kernel.tree.least_squares import sweep_up
from trueup.kernel.tree.topdown import attainable
from trueup.layouts.histogram import histogram_problem
from trueup.layouts.tree import refuse_conflicts, refuse_unidentified, tree_problem, whole_values
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.reconciling.family_tree import FamilyTree
from trueup.reconciling.histogram_tree import solution
from trueup.reconciling.joined_tree import JoinedTree
from trueup.reconciling.margins_projection import MarginsProjection
from trueup.reconciling.method import Solution


def drawn_populations(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: NDArray,
    number: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw whole counts `(number, n)` given measured values `(q,)`; they keep every rule but upper bounds on crossing margins.

    Raises
    ------
    SpecError
        If nothing is drawn under these constraints: linear rules, counts below zero, correlated noise.
    ConvergenceError
        If a draw leaves some place without a table.

    Examples
    --------
    >>> from trueup.demo.areas import AREAS
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
        raise SpecError("no population is drawn under these constraints", needed="nested or crossing margins")
    if structure in ("sum", "tree"):
        return _of_tree(constraints, headers, values, number, rng)
    if structure == "margins" and any(h.exact for h in headers):
        return _within_margins(constraints, headers, values, number, rng)
    rows = np.tile(values, (number, 1))
    if structure == "joined":
        method = JoinedTree(estimates="least-squares")
        return _solved(method.apply(method.prepare(constraints, headers), rows, rng, drawn=rng))
    if structure == "family":
        family = FamilyTree()
        return _solved(family.apply(family.prepare(constraints, headers), rows, rng, drawn=rng))
    some = replace(constraints, bounds=tuple(b for b in constraints.bounds if b.upper is None))
    problem = histogram_problem(some, headers, folded=True)
    return _solved(solution(problem, rows, problem.chains, rng, integer=True, posterior=True, drawn=rng))


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
    """Draw from the noisy values alone, and return the nearest tables that have the exact margins."""
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
