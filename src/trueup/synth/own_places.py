"""Synthetic populations on the public places of a spec, on which the spec's errors can be tried out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.family import FamilyCells
from trueup.model.problem import Problem
from trueup.model.tree import Tree
from trueup.synth import refuse_linear, refuse_rules
from trueup.synth.people import PeopleDomain, populate
from trueup.synth.places import SPREAD, SPREAD_LAST, SPREAD_TOP, PlaceBranch, some_empty
from trueup.synth.totals import PERSONS_PER_BLOCK, PERSONS_PER_PLACE

MAX_SPARSE_UNITS_RATIO = 10
"""Times as many units a place as blocks have, up to which some places are empty, as blocks are."""
PARENT_SHARE = 0.5
"""Part of each attribute's shares that a place has from its parent: with it they vary as in a Dirichlet law of
concentration 35 (three counties of real blocks have 21, 26 and 53), yet rare groups live in many places, as real ones do."""


def made_up_counts(
    problem: Problem, rng: np.random.Generator, persons: int | None = None
) -> NDArray[np.int64]:
    """Draw made-up counts `(n,)` of all cells, on the places of a given problem.

    Parameters
    ----------
    problem
        The spec and its places; structural zeros are kept, and upper limits: of units above one some are left out at random.
    persons
        Units in all, before any are left out; by default `usual_persons`.

    Raises
    ------
    SpecError
        If the spec has lower limits or linear rules, or limits on several tables, which drawn counts would break.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> problem = Problem.of(AREAS, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> counts = made_up_counts(problem, np.random.default_rng(1), persons=700)
    >>> counts.shape, int(counts.sum())
    ((2,), 700)
    """
    if isinstance(problem.cells, FamilyCells) or any(b.lower is not None for b in problem.constraints.bounds):
        refuse_rules(problem.spec)
    refuse_linear(problem.spec)
    cells, tree = problem.cells, problem.cells.tree
    units = usual_persons(tree) if persons is None else persons
    family = cells if isinstance(cells, FamilyCells) else None
    cells = family.whole if family else cells
    domain = PeopleDomain.of(cells, problem.spec.constraints.zeros)
    branch = _branch(tree, rng, empty=units <= MAX_SPARSE_UNITS_RATIO * PERSONS_PER_BLOCK * tree.sizes[-1])
    parts = populate(domain, branch, units, rng, even=PARENT_SHARE)
    if family:  # the full cross may be too large for an array
        each, tallied = cells.n // cells.shape[0], np.zeros(family.n, np.int64)
        for part in parts:
            tallied += family.tally(np.asarray(part.leaf, np.int64) * each + part.cell, part.count)
        return tallied
    counts = np.zeros((cells.shape[0], cells.n // cells.shape[0]), np.int64)
    for part in parts:
        np.add.at(counts, (part.leaf, part.cell), part.count)
    counts = counts.ravel()
    for bound in problem.constraints.bounds:
        leave_out_excess(cells, bound.margin, problem.constraints.bound_values(bound)[1], counts, rng)
    return counts


def leave_out_excess(
    cells: Cells,
    margin: Margin,
    upper: NDArray[np.float64],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """Remove random units from each group of a margin that exceeds its upper limit, in place."""
    groups = cells.groups(cells.finest, margin)
    order = np.argsort(groups, kind="stable")
    ends = np.searchsorted(groups[order], np.arange(upper.size + 1))
    for group in np.flatnonzero(cells.sum(counts, margin) > upper):
        own = order[ends[group] : ends[group + 1]]
        kept = max(int(np.floor(upper[group])), 0)
        counts[own] = rng.multivariate_hypergeometric(counts[own], kept, method="marginals")


def usual_persons(tree: Tree) -> int:
    """Return a typical number of units for a tree of places, by the names of its levels.

    Examples
    --------
    >>> columns = [{}, {"county": ["a", "a", "b"]}, {"district": ["1", "2", "3"]}]
    >>> usual_persons(Tree.from_columns(["all", "county", "district"], columns))
    210000
    """
    known = [name.casefold().replace("_", " ") for name in tree.levels]
    at = next((i for i in reversed(range(len(known))) if known[i] in PERSONS_PER_PLACE), None)
    if at is None:
        return PERSONS_PER_BLOCK * tree.sizes[-1]
    return PERSONS_PER_PLACE[known[at]] * tree.sizes[at]


def _branch(tree: Tree, rng: np.random.Generator, *, empty: bool) -> PlaceBranch:
    """Return the places of a tree, with random relative populations."""
    last = len(tree.levels) - 1
    parents, weights = [], np.ones(tree.sizes[0])
    for level in range(1, last + 1):
        parents.append(tree.ancestors(level, level - 1))
        spread = SPREAD_LAST if level == last else SPREAD_TOP if level == 1 else SPREAD
        weights = weights[parents[-1]] * rng.lognormal(0, spread, parents[-1].size)
    return PlaceBranch(tuple(parents), some_empty(weights, rng) if empty and parents else weights)
