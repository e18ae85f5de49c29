"""Reconciliation of tables that share margins: joint least squares, then one final table after another.

**By segments of the tree**, as `histogram_parts` does for histograms: the integers of the whole tree.
Upwards a segment says what its subtrees tell of every component of least squares at its top places. Downwards each table is
settled below its settled top places, in the order of the junction tree of the whole: tables that end above the segment have
no part in it. Tables stand beside each other, in the order of the family's tables that reach a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel import Status
from trueup.kernel.families.least_squares import Contrast
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.settling.descend import Settling
from trueup.layouts.family import FamilyProblem, family_problem
from trueup.layouts.family_rules import refuses_bounds
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.histogram_parts import Answers, Settlement, Summary
from trueup.reconciling.histogram_tree import FromTheTop, all_settled, in_chunks, settling_stats
from trueup.reconciling.method import Solution


@dataclass(frozen=True)
class FamilyTree(FromTheTop):
    """Reconciliation of several tables that share margins, without a table of all their attributes.

    Least squares uses every table for every margin that they share. Its components are those of the full cross that some
    table sees, each down to the deepest level at which one does. Then tables are settled in the order of a junction tree. The
    first is settled whole, from the top place down; each further one given what it shares with its parent, for every place
    and cell of that a transportation problem, so that whole nonnegative tables always exist and agree. As they agree, they
    are margins of one table of records. A cycle of tables is closed by the smallest joint table that makes it acyclic, which
    nothing measures: it is fitted to what is measured of its sums, settled with the others, and not released.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    estimates
        `posterior-means` or `least-squares`: the estimates at which the tables of a place's children are fixed.
    """

    name: ClassVar[str] = "family-tree"
    title: ClassVar[str] = (
        "several tables that share margins: joint least squares, then final tables along a junction tree"
    )
    structures: ClassVar[frozenset[str]] = frozenset({"family"})
    effort: ClassVar[int] = 8

    def refuses(self, constraints: Constraints) -> str | None:
        """Return why bounds cannot be kept (no single table contains them all), or None if they can."""
        return refuses_bounds(constraints)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> FamilyProblem:
        """Return the least-squares problem of a family of tables, with covariances of the estimates."""
        return family_problem(constraints, headers)

    def divide(self, constraints: Constraints, headers: Sequence[Measured]) -> FamilyPlan:
        """Return the plan that is shared by all segments into which the tree of places is divided."""

        return FamilyPlan(family_problem(constraints, headers), self.settling())

    def errors(self, state: FamilyProblem) -> dict[Margin, NDArray]:
        """Return the standard errors (counts) of the least-squares estimates of every measured margin."""
        return state.standard_errors

    def apply(
        self,
        state: FamilyProblem,
        values: NDArray,
        rng: np.random.Generator,
        drawn: np.random.Generator | None = None,
    ) -> Solution:
        """Reconcile values `(q,)` or `(b, q)` into counts, with ties of rounding broken at random."""
        return in_chunks(
            values, state.shown.n, rng, lambda rows, seeds: self._settled(state, rows, seeds, drawn)
        )

    def _settled(
        self, state: FamilyProblem, rows: NDArray, seeds: NDArray, drawn: np.random.Generator | None
    ) -> Solution:
        counts, tables = state.settle(rows, seeds, self.settling(drawn=drawn))
        stats = settling_stats(*tables)
        solved = all_settled(stats, rows)
        counts = state.shown.of_closed(counts)
        counts = np.rint(counts).astype(np.int64) if self.integer else counts
        return Solution(counts, Status.SOLVED if solved else Status.UNSOLVED, stats)


@dataclass(frozen=True, eq=False)
class FamilyPlan:
    """The data shared by all segments (groups of subtrees) of a family of tables.

    Attributes
    ----------
    problem
        The family on one place a level.
    how
        The options for computing the final tables.
    """

    problem: FamilyProblem
    how: Settling

    def __post_init__(self) -> None:
        if self.problem.joint is not None:
            raise SpecError(
                "the tables' shared attributes form a cycle (as in a x b, b x c, c x a), so no release by parts is possible",
                remedy="give --engine memory",
            )
        if self.problem.constraints.bounds:
            raise SpecError(
                "bounds on several tables that share margins cannot be kept in a release by parts",
                remedy="give --engine memory",
            )

    def place_cells(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return the largest number of cells, and of measured values, of a place of any level."""
        names = self.problem.cells.tree.levels
        values = [
            sum(self.problem.cells.size(h.margin) for h in self.problem.headers if h.margin.level == name)
            for name in names
        ]
        tables = [sum(self.widths(level)) for level in range(len(names))]
        return tuple(max(-(-n * k // sizes[-1]) for n, k in zip(each, sizes)) for each in (tables, values))  # pyright: ignore[reportReturnType]

    def widths(self, level: int) -> list[int]:
        """Return the number of cells that a place of a level has in each table."""
        return [t.tree.domain.cells * (t.levels > level) for t in self.problem.tables]


@dataclass(frozen=True, eq=False)
class FamilySegment:
    """A segment of the tree of places: some places, with those below them down to another level.

    Attributes
    ----------
    plan
        The plan that all segments have in common.
    levels
        Its levels.
    spine
        The places, a forest.
    firsts
        Per level, the position of its first place within the level of the whole tree.
    """

    plan: FamilyPlan
    levels: range
    spine: Spine
    firsts: tuple[int, ...]

    def fitted(self, answers: Answers, below: Summary | None) -> tuple[FamilyProblem, list[list[NDArray]]]:
        """Return the family of tables on this segment's places, with least-squares fits of each subtree."""
        z = v = None
        if below is not None:
            known = self.known(self.levels[-1])
            z = {c: below[f"estimates {i}"][None] for i, c in enumerate(known)}
            v = {c: below[f"covariances {i}"] for i, c in enumerate(known)}
        problem = self.plan.problem.on(self.spine, self.levels, self.firsts, v)
        rows = [[np.asarray(table, float)[None] for table in level] for level in answers]
        return problem, problem.least_squares.fit(rows, subtrees=True, below=z)

    def known(self, level: int) -> list[Contrast]:
        """Return the components of the tables that are measured at a level or below it."""
        return [b.contrast for b in self.plan.problem.least_squares.blocks if b.depth > level]

    def up(self, answers: Answers, below: Summary | None) -> Summary:
        """Return estimates of the segment's top places, from all measurements in their subtrees."""
        problem, fit = self.fitted(answers, below)
        parts = {}
        for i, (block, z) in enumerate(zip(problem.least_squares.blocks, fit, strict=True)):
            parts[f"estimates {i}"] = z[0][0]
            wide = (self.spine.size(0), *block.variance[0].shape[1:])
            parts[f"covariances {i}"] = np.broadcast_to(block.variance[0], wide)
        return parts

    def down(
        self, answers: Answers, below: Summary | None, above: NDArray | None, seed: np.uint64 | int
    ) -> Settlement:
        """Return the final tables of a segment's places, given those of its top places."""
        problem, fit = self.fitted(answers, below)
        tops = None if above is None else self.split(above, self.levels.start)
        settled = problem.settle_fit(fit, np.array([seed], np.uint64), self.plan.how, tops)
        first = int(above is not None)
        tables = tuple(
            np.concatenate(
                [
                    np.zeros((self.spine.size(at), 0), np.int64),
                    *(s.values[at] for _, s in sorted(settled.items()) if len(s.values) > at),
                ],
                axis=1,
            )
            for at in range(first, len(self.levels))
        )
        stats = settling_stats(*settled.values())
        largest = max((float(np.abs(t).max(initial=0)) for level in answers for t in level), default=0.0)
        return Settlement(tables, self.levels[first:], stats, all_settled(stats, np.array([largest])))

    def split(self, tables: NDArray, level: int) -> dict[int, NDArray]:
        """Split an array `(places, cells)` of a level into the family's tables that reach this level."""
        widths = self.plan.widths(level)
        parts = np.split(tables, np.cumsum(widths)[:-1], axis=1)
        return {i: part for i, part in enumerate(parts) if widths[i]}
