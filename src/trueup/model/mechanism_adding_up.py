"""Lay out a query whose noisy counts add up as they are drawn (`noise = "add-up-laplace"`)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy  # its parts load when first used

from trueup.errors import SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.model.build import query_margin
from trueup.model.constraints import Constraints
from trueup.model.mechanism_on_lattice import LatticePlan, slowest_of
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.lattice.draw import choose_sampler
from trueup.noise.lattice.feasible import AddUpLaplace
from trueup.noise.law import Sensitivity
from trueup.privacy.contribution import Reach


def plan_adding_up(
    spec: Spec, query: Query, constraints: Constraints, reach: Reach
) -> dict[str, LatticePlan]:
    """Return the law of each level of a query, all with one sampler, and what to tell about it."""
    cells, levels = constraints.cells, sorted(query.budgets, key=constraints.cells.tree.level)
    if why := _misfit(query, constraints):
        raise SpecError(f"query '{query.name}' has noise '{query.noise}', {why[0]}", needed=why[1])
    margins = [query_margin(cells, query, level) for level in levels]
    sizes = [cells.size(margin) for margin in margins]
    laws = [
        AddUpLaplace.for_budget(query.budgets[level], _level_step(spec, reach, size))
        for level, size in zip(levels, sizes)
    ]
    groups = [cells.groups(fine, coarse) for coarse, fine in pairwise(margins)]
    zeros = np.concatenate([constraints.zero_groups(margin) for margin in margins])
    lattice = Lattice.of(sum(sizes), _sums(sizes, groups), zeros)
    finest = laws[-1].epsilon
    weights = [law.epsilon / finest for law, size in zip(laws, sizes) for _ in range(size)]
    bound = choose_sampler(LatticeLaplace(finest), lattice, weights=weights, slowest=slowest_of(query))
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    told = (
        f"The noisy counts of '{query.name}' at {', '.join(levels)} add up as they are drawn.",
        *(f"Drawn: {line}." for line in bound.explain()),
    )
    return {
        level: LatticePlan(law.placed(bound, first), told if first == 0 else ())
        for level, law, first in zip(levels, laws, firsts)
    }


def _level_step(spec: Spec, reach: Reach, size: int) -> Sensitivity:
    """Return what one step moves at a level; a total that it does not move gets the noise of one unit."""
    step = reach.sensitivity(spec.privacy.neighbours, cells=size)
    return step if step.l1 else reach.sensitivity("add-remove", cells=size)


def _misfit(query: Query, constraints: Constraints) -> tuple[str, str] | None:
    """Return what is wrong and what is needed, or None."""
    if len(query.budgets) < 2:
        return "and is measured at one level alone", "a total and its parts: two levels or more"
    if query.currency != "epsilon":
        return "and a budget in rho", "epsilon = { ... }"
    if constraints.invariants:
        return "and invariants are held", "'lattice-laplace', which keeps them"
    return None


def _sums(sizes: list[int], groups: list[np.ndarray]) -> scipy.sparse.csr_array:
    """Return a row for every count but the finest: itself, less its parts."""
    starts, inner = np.cumsum([0, *sizes]), sum(sizes[:-1])
    parents = np.concatenate([start + group for start, group in zip(starts, groups)])
    parts = np.arange(sizes[0], starts[-1])
    rows, columns = np.concatenate([np.arange(inner), parents]), np.concatenate([np.arange(inner), parts])
    signs = np.repeat([1, -1], [inner, parts.size])
    return scipy.sparse.csr_array((signs, (rows, columns)), shape=(inner, starts[-1]))
