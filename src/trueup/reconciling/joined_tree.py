"""Reconciliation of two linked tables: households first, then persons given the final households.

The households are a histogram on the hierarchy by themselves, and so are the persons: each is reconciled as such. What
links them goes one way. Once the households of every place are settled, the number of persons there follows, for each
combination of the attributes of both tables and as far as households tell persons apart (`LinkedTables.determined`); these
sums add up over places as the households do. The persons' tables are settled given them: estimates are conditioned on
them, and they are kept as any coarser table is. So every rule between the tables holds at every place and level by
construction, in whole numbers. Where a number of persons has a top code, its households are a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel import Status
from trueup.layouts.histogram import HistogramProblem, histogram_problem
from trueup.model.build import own_constraints
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.joined import LinkedTables
from trueup.reconciling.histogram_tree import HistogramTree, Within, solution
from trueup.reconciling.joined_parts import (
    JoinedPlan,
    joined_plan,
    known_margins,
    of_table,
    own_header,
    within_households,
)
from trueup.reconciling.method import Solution


class JoinedProblem(NamedTuple):
    """Two linked tables as two separate problems, with all constraints and headers."""

    constraints: Constraints
    headers: tuple[Measured, ...]
    persons: HistogramProblem
    households: HistogramProblem


@dataclass(frozen=True)
class JoinedTree(HistogramTree):
    """Reconciliation of a table of persons and a table of households such that both agree.

    Each table is estimated by weighted least squares over all its places and marginals. Then, from the top down, households
    are computed as by `histogram-tree`, and persons likewise, given the numbers that the final households hold.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    estimates
        `posterior-means` or `least-squares`; see `histogram-tree`.
    """

    name: ClassVar[str] = "joined-tree"
    title: ClassVar[str] = (
        "two linked tables: households first, then persons within the limits that households set"
    )
    structures: ClassVar[frozenset[str]] = frozenset({"joined"})

    def refuses(self, constraints: Constraints) -> str | None:
        """Return None, because specs of two linked tables have no rules that the method cannot keep."""
        return None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> JoinedProblem:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return both tables as problems prepared for least squares."""
        joined = constraints.joined
        assert joined is not None
        problems = []
        for table in joined.tables:
            own = [own_header(joined, headers[i]) for i in of_table(joined, headers, table)]
            known = known_margins(joined, constraints.cells.tree.levels[0]) if table is joined.persons else ()
            problems.append(
                histogram_problem(own_constraints(constraints, table), own, folded=True, known=known)
            )
        return JoinedProblem(constraints, tuple(headers), *problems)

    def apply(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        state: JoinedProblem,
        values: NDArray,
        rng: np.random.Generator,
        drawn: np.random.Generator | None = None,
    ) -> Solution:
        """Reconcile values `(q,)` or `(b, q)` into counts, with ties of rounding broken at random."""
        joined, cells = state.constraints.joined, state.constraints.cells
        assert joined is not None
        parts = split(np.atleast_2d(values), state.headers, cells)
        answers = [
            np.concatenate([parts[i] for i in of_table(joined, state.headers, table)], axis=1)
            for table in joined.tables
        ]
        first = self._settled(
            state.households, answers[1], deepcopy(rng), drawn=drawn
        )  # ties as in parts: one seed for both
        alone = joined.households.cells(cells.tree)
        tables = [
            alone.sum(first.values, Margin(name, alone.finest.attributes)).reshape(
                -1, alone.n // cells.tree.sizes[-1]
            )
            for name in cells.tree.levels
        ]
        spine = state.persons.tree.spine.tiled(len(first.values))
        within = within_households(joined, state.persons.fold, spine, tables)
        second = self._settled(state.persons, answers[0], rng, within, drawn)
        counts = stacked_counts(joined, second.values, first.values)
        stats = {key: max(one, second.stats[key]) for key, one in first.stats.items()}
        status = Status.worst([first.status, second.status])
        return Solution(counts.reshape(*values.shape[:-1], cells.n), status, stats)

    def _settled(
        self,
        problem: HistogramProblem,
        values: NDArray,
        rng: np.random.Generator,
        within: Within | None = None,
        drawn: np.random.Generator | None = None,
    ) -> Solution:
        bounded = problem if within is None else replace(problem, lower=within.lower)
        return solution(problem, values, bounded.chains, rng, self.settling(problem.first, drawn), within)

    def divide(self, constraints: Constraints, headers: Sequence[Measured]) -> JoinedPlan:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the plan that is shared by all segments of both tables."""
        return joined_plan(constraints, headers, integer=self.integer, posterior=self.posterior)

    def errors(self, state: JoinedProblem) -> dict[Margin, NDArray]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return no errors, because no formula exists for persons given the reconciled households."""
        return {}


def stacked_counts(joined: LinkedTables, persons: NDArray, households: NDArray) -> NDArray:
    """Return counts `(b, n)` of both tables together, given persons and households separately."""
    shared = int(np.prod([a.size for a in joined.persons.shared], dtype=np.int64))
    tables = [
        x.reshape(len(x), -1, table.size, shared) for x, table in zip((persons, households), joined.tables)
    ]
    return np.concatenate(tables, axis=2).reshape(len(persons), -1)
